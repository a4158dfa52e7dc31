# SPDX-License-Identifier: Apache-2.0
"""python -m hekla, and the script `hekla` of an installed wheel: the tool of bin/hekla."""
import os
import sys

import hekla


def main():
    """Becomes the tool, with this process's arguments. Returns only where there is none: 2."""
    places = [prefix / 'bin' / 'hekla' for prefix in hekla._prefixes()]
    for tool in places:
        if tool.is_file():
            os.execv(tool, ['hekla', *sys.argv[1:]])
    print(f"hekla: the tool is neither {' nor '.join(map(str, places))}", file=sys.stderr)
    return 2


if __name__ == '__main__':
    sys.exit(main())
