#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the C API headers of plugin_api/ with a machine-readable description of the interface.

The description (pjrt_abi.json beside this file) lists every struct, field, enumerator and slot with
offset, size and the minor version in which it appeared. It holds the facts of a longer one with
words, which maintainers keep in $HEKLA_SHARED/reference or ../shared/reference beside the checkout;
where that is, both must agree. --write makes the short one of it.

A C++ program is written from the description, compiled against the headers and run; it prints each
difference. The "since" comments of the headers are compared as text, and all headers are compiled
as C11. With --headers-only the last step is the only one.
"""

import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADERS = ["pjrt_base.h", "pjrt_device.h", "pjrt_client.h", "pjrt_buffer.h", "pjrt_executable.h",
           "pjrt_topology.h", "pjrt_c_api.h", "pjrt_extensions.h"]
C_HEADERS = [*HEADERS, "xla_ffi.h"]
# The extensions that pjrt_extensions.h declares, by their names in the description.
EXTENSIONS = ["Layouts", "MemoryDescriptions", "Shardings", "FFI", "Gpu", "CustomPartitioner", "HostMemoryAllocator",
              "ProfilerApi", "Profiler"]
DESCRIPTION = pathlib.Path(__file__).resolve().parent / "pjrt_abi.json"
LEAST_COMPARISONS = 4239


def find_description() -> pathlib.Path | None:
    places = [os.environ.get("HEKLA_SHARED"), ROOT.parent / "shared"]
    for place in places:
        path = pathlib.Path(place) / "reference" / "pjrt_abi.json" if place else None
        if path and path.is_file():
            return path
    return None


# What of the long description is a fact that is compared.
KEYS = {"constants", "enums", "values", "name", "value", "since_minor", "callback_types", "returns",
        "params", "args", "opaque_types", "structs", "sizeof", "alignof", "struct_size_value", "fields",
        "type", "decl", "offset", "size", "anonymous", "members", "api_table", "header_fields",
        "num_functions", "functions", "index", "extensions", "table", "slot", "type_enumerator",
        "type_value"}


def facts(value, key=None):
    if key == "extensions":
        value = [extension for extension in value if extension["name"] in EXTENSIONS]
    if isinstance(value, list):
        return [facts(item) for item in value]
    if isinstance(value, dict) and key != "constants":
        return {k: facts(v, k) for k, v in value.items() if k in KEYS}
    return value


def members(struct: dict) -> list:
    """The fields of a struct with those of anonymous unions among them."""
    out = []
    for field in struct["fields"]:
        out.extend(field["members"] if "anonymous" in field else [field])
    return out


def function_type(returns: str, args: str) -> str:
    return f"{returns} (*)({args}*)"


class Program:
    """Collects comparisons; the generated program counts them and prints what differs."""

    def __init__(self):
        self.lines = []
        self.declarations = []
        self.count = 0

    def equal(self, what: str, expression: str, value) -> None:
        self.lines.append(f'  check("{what}", static_cast<long long>({expression}), {value}LL);')
        self.count += 1

    def same_type(self, what: str, expression: str, expected: str) -> None:
        self.lines.append(f'  same("{what}", std::is_same_v<{expression}, {expected}>);')
        self.count += 1

    def enum(self, enum: dict) -> None:
        for value in enum["values"]:
            self.equal(value["name"], value["name"], value["value"])

    def struct(self, struct: dict, slots: dict | None = None) -> None:
        """`slots` maps names of slots of this struct to their functions."""
        name = struct["name"]
        self.equal(f"sizeof {name}", f"sizeof({name})", struct["sizeof"])
        self.equal(f"alignof {name}", f"alignof({name})", struct["alignof"])
        fields = members(struct)
        probe = f"probe_{name}"
        self.declarations.append(f"struct {probe} {{")
        for field in fields:
            slot = (slots or {}).get(field["name"])
            if slot is not None:
                text = f'{slot["returns"]} (*{field["name"]})({slot["args"]}*)'
            else:
                text = field.get("decl") or f'{field["type"]} {field["name"]}'
            self.declarations.append(f"  {text.rstrip(';')};")
        self.declarations.append("};")
        end = 0
        for field in fields:
            where = f'{name}.{field["name"]}'
            self.equal(f"offset of {where}", f'offsetof({name}, {field["name"]})', field["offset"])
            self.equal(f"size of {where}", f'sizeof({name}::{field["name"]})', field["size"])
            self.same_type(f"type of {where}", f'decltype({name}::{field["name"]})',
                           f'decltype({probe}::{field["name"]})')
            end = max(end, field["offset"] + field["size"])
        # A field too many would hide in padding or behind the end: a structured binding over all
        # fields compiles only for the exact number. Unions have none, so those are left to sizeof.
        if not any("anonymous" in field for field in struct["fields"]) and fields:
            names = ", ".join(f"f{i}" for i in range(len(fields)))
            self.declarations.append(
                f"inline void count_{name}(const {name}& s) {{ const auto& [{names}] = s; "
                + " ".join(f"(void)f{i};" for i in range(len(fields))) + " }")
        last = [field for field in fields if field["offset"] + field["size"] == end][0]["name"]
        self.equal(f"struct size value of {name}", f"PJRT_STRUCT_SIZE({name}, {last})",
                   struct["struct_size_value"])

    def text(self) -> str:
        return "\n".join([
            '#include <cstdio>', '#include <type_traits>', '#include "plugin_api/pjrt_extensions.h"',
            "namespace {", "int wrong = 0;",
            "void check(const char* what, long long got, long long want) {",
            '  if (got != want) { ++wrong; std::printf("%s: header %lld, description %lld\\n", '
            "what, got, want); }", "}",
            "void same(const char* what, bool equal) {",
            '  if (!equal) { ++wrong; std::printf("%s differs\\n", what); }', "}", "}",
            *self.declarations, "int main() {", *self.lines,
            f'  std::printf("{self.count} comparisons, %d differences\\n", wrong);',
            "  return wrong != 0;", "}", ""])


def callback(program: Program, entry: dict) -> None:
    program.same_type(entry["name"], entry["name"], f'{entry["returns"]} (*)({entry["params"]})')


def build_program(description: dict) -> Program:
    program = Program()
    for name, value in description["constants"].items():
        program.equal(name, name, value)
    for enum in description["enums"]:
        program.enum(enum)
    for entry in description["callback_types"]:
        callback(program, entry)
    for name in description["opaque_types"]:
        program.declarations.append(f"inline {name}* opaque_{name} = nullptr;")
    for struct in description["structs"]:
        program.struct(struct)
    table = description["api_table"]
    program.equal("sizeof PJRT_Api", "sizeof(PJRT_Api)", table["sizeof"])
    for field in table["header_fields"]:
        program.equal(f'offset of PJRT_Api.{field["name"]}',
                      f'offsetof(PJRT_Api, {field["name"]})', field["offset"])
    program.equal("slots of PJRT_Api", "(sizeof(PJRT_Api) - offsetof(PJRT_Api, PJRT_Error_Destroy)) "
                  "/ sizeof(void*)", table["num_functions"])
    for slot in table["functions"]:
        program.equal(f'offset of slot {slot["index"]} {slot["name"]}',
                      f'offsetof(PJRT_Api, {slot["name"]})', slot["offset"])
        program.same_type(f'type of slot {slot["name"]}', f'decltype(PJRT_Api::{slot["name"]})',
                          function_type(slot["returns"], slot["args"]))
    for extension in description["extensions"]:
        if extension["name"] not in EXTENSIONS:
            continue
        for enum in extension["enums"]:
            program.enum(enum)
        for name in extension["opaque_types"]:
            program.declarations.append(f"inline {name}* opaque_{name} = nullptr;")
        for entry in extension["callback_types"]:
            callback(program, entry)
        for struct in extension["structs"]:
            program.struct(struct, {entry["slot"]: entry for entry in extension["functions"]
                                    if entry["table"] == struct["name"]})
        if "type_enumerator" in extension:
            program.equal(f'type of {extension["name"]}', extension["type_enumerator"],
                          extension["type_value"])
    return program


def since_comments() -> tuple[dict, dict]:
    """Minor versions from the headers' comments: of structs, and of members and enumerators."""
    structs = {}
    names = {}
    for header in HEADERS[:-1]:
        text = (ROOT / "plugin_api" / header).read_text()
        for block in re.finditer(r"((?://[^\n]*\n)*)struct (\w+) \{\n(.*?)\n\};", text, re.S):
            comment = re.search(r"Since 0\.(\d+)", block.group(1))
            owner = block.group(2)
            structs[owner] = int(comment.group(1)) if comment else 1
            body = block.group(3)
            # A member may take several lines; its comment stands behind the semicolon.
            for member in re.finditer(r"(\w+)\)?(?:\([^;]*\))?;[ \t]*(//[^\n]*)?", body):
                since = re.search(r"since 0\.(\d+)", member.group(2) or "")
                names[f"{owner}.{member.group(1)}"] = int(since.group(1)) if since else None
        for enumerator in re.finditer(r"^\s*(PJRT_\w+) = \d+,[ \t]*(//[^\n]*)?", text, re.M):
            since = re.search(r"since 0\.(\d+)", enumerator.group(2) or "")
            names[enumerator.group(1)] = int(since.group(1)) if since else 1
    return structs, names


def compare_since(description: dict) -> list:
    structs, names = since_comments()
    problems = []

    def differ(what, got, want):
        if got != want:
            problems.append(f"since of {what}: header {got}, description {want}")

    for struct in description["structs"]:
        own = struct.get("since_minor", 1)
        differ(struct["name"], structs.get(struct["name"]), own)
        for field in members(struct):
            key = f'{struct["name"]}.{field["name"]}'
            since = field.get("since_minor")
            if since is not None and since > own or names.get(key) is not None:
                differ(key, names.get(key), since)
    for enum in description["enums"]:
        for value in enum["values"]:
            differ(value["name"], names.get(value["name"]), value.get("since_minor", 1))
    for slot in description["api_table"]["functions"]:
        differ(slot["name"], names.get(f'PJRT_Api.{slot["name"]}') or 1, slot["since_minor"])
    slots = re.findall(r"HEKLA_SLOT_INFO\((\w+), (\d+), (\w+)\)",
                       (ROOT / "plugin_api/conformance/slots.inc").read_text())
    want = [(slot["name"], str(slot["since_minor"])) for slot in description["api_table"]["functions"]]
    if [slot[:2] for slot in slots] != want:
        problems.append("plugin_api/conformance/slots.inc does not list the table's slots")
    return problems


def run(command: list) -> int:
    return subprocess.run([str(word) for word in command]).returncode


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cxx", default="c++")
    parser.add_argument("--cc", default="cc")
    parser.add_argument("--headers-only", action="store_true")
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        if arguments.headers_only:
            for header in C_HEADERS:
                source = work / "header.c"
                source.write_text(f'#include "plugin_api/{header}"\n#include "plugin_api/{header}"\n'
                                  "int unused;\n")
                if run([arguments.cc, "-std=c11", "-pedantic-errors", "-Wall", "-Wextra", "-Werror",
                        f"-I{ROOT}", "-fsyntax-only", source]):
                    print(f"plugin_api/{header} is not clean C11")
                    return 1
            return 0
        path = find_description()
        long_one = facts(json.loads(path.read_text())) if path else None
        if arguments.write:
            DESCRIPTION.write_text(json.dumps(long_one, separators=(",", ":")) + "\n")
            return 0
        description = json.loads(DESCRIPTION.read_text())
        if long_one is not None and long_one != description:
            print(f"{path} says other things than {DESCRIPTION}: look, and abi_test.py --write")
            return 1
        compared = build_program(description)
        if compared.count < LEAST_COMPARISONS:
            print(f"{DESCRIPTION} has {compared.count} facts of {LEAST_COMPARISONS}")
            return 1
        source = work / "abi.cc"
        source.write_text(compared.text())
        program = work / "abi"
        if run([arguments.cxx, "-std=c++20", "-O0", "-Wno-invalid-offsetof", f"-I{ROOT}", source,
                "-o", program]):
            print("the header lacks something that the description has (see the compiler's words)")
            return 1
        status = run([program])
        problems = compare_since(description)
        for problem in problems:
            print(problem)
        return 1 if status or problems else 0


if __name__ == "__main__":
    sys.exit(main())
