# SPDX-License-Identifier: Apache-2.0
"""Traces as profilers write them (*.xplane.pb): an XSpace, read without a protobuf library."""
import pathlib


def _varint(data, at):
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7f) << shift
        shift += 7
        if byte < 0x80:
            return value, at


def _fields(data):
    """[(number, integer or bytes)] of a message; numbers of 32 and 64 bits stay bytes."""
    fields, at = [], 0
    while at < len(data):
        key, at = _varint(data, at)
        kind = key & 7
        if kind == 0:
            value, at = _varint(data, at)
        else:
            size, at = _varint(data, at) if kind == 2 else ({1: 8, 5: 4}[kind], at)
            value = bytes(data[at:at + size])
            assert len(value) == size
            at += size
        fields.append((key >> 3, value))
    return fields


def _one(fields, number, default=0):
    return next((value for field, value in fields if field == number), default)


def _table(fields, number):
    """{id: fields} of a map from ids to metadata."""
    entries = (_fields(value) for field, value in fields if field == number)
    return {_one(entry, 1): _fields(_one(entry, 2, b'')) for entry in entries}


def _stats(fields, number, names):
    stats = {}
    for field, value in fields:
        if field != number:
            continue
        stat = _fields(value)
        kind, what = next(((k, v) for k, v in stat if k != 1), (5, b''))
        if kind == 4 and what >= 1 << 63:
            what -= 1 << 64
        stats[names.get(_one(stat, 1))] = what.decode() if kind == 5 else what
    return stats


def read(folder):
    """{plane: {line: [(name, begin ns, duration ns, stats)]}} of the one trace below `folder`."""
    (path,) = pathlib.Path(folder).rglob('*.xplane.pb')
    planes = {}
    for field, value in _fields(path.read_bytes()):
        if field != 1:
            continue
        plane = _fields(value)
        names = {number: _one(metadata, 2, b'').decode() for number, metadata in _table(plane, 5).items()}
        events = {number: (_one(metadata, 2, b'').decode(), _stats(metadata, 5, names))
                  for number, metadata in _table(plane, 4).items()}
        lines = planes.setdefault(_one(plane, 2, b'').decode(), {})
        for number, text in plane:
            if number != 3:
                continue
            line = _fields(text)
            shown = lines.setdefault(_one(line, 2, b'').decode(), [])
            for event in (_fields(value) for field, value in line if field == 4):
                name, stats = events[_one(event, 1)]
                shown.append((name, _one(line, 3) + _one(event, 2) / 1000, _one(event, 3) / 1000,
                              {**stats, **_stats(event, 4, names)}))
    return planes


def ours(folder, platform):
    """The same, of Hekla's devices alone, by their names: "tbb:0"."""
    prefix = '/device:CUSTOM:'
    return {name.removeprefix(prefix): lines for name, lines in read(folder).items()
            if name.startswith(f'{prefix}{platform}:')}
