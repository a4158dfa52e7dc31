# SPDX-License-Identifier: Apache-2.0
"""Programs of one operation each, of sizes at which GPUs choose the kernels of their own.

programs(): {name: text of StableHLO}. pipeline_table.py compiles them on drivers of GPUs.
"""


def _main(arguments: dict, body: str, result: str, kind: str) -> str:
    parameters = ", ".join(f"%{name}: tensor<{type_}>" for name, type_ in arguments.items())
    return (f"func.func public @main({parameters}) -> tensor<{kind}> {{\n{body}\n"
            f"  return {result} : tensor<{kind}>\n}}\n")


def _algorithm(operands: str, products: int) -> str:
    return (f", algorithm = <lhs_precision_type = {operands}, rhs_precision_type = {operands}, accumulation_type = f32, "
            f"lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = {products}, "
            "allow_imprecise_accumulation = false>")


def _product(n: int, operands: str, sums: str, right: int = 0, words: str = "") -> str:
    """n x n by n x n; `right`: which dimension of the right operand is contracted."""
    kind = f"{n}x{n}x{operands}"
    return _main({"x": kind, "y": kind},
                 f"  %r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [{right}]{words} : "
                 f"(tensor<{kind}>, tensor<{kind}>) -> tensor<{n}x{n}x{sums}>",
                 "%r", f"{n}x{n}x{sums}")


def _vector(operands: str) -> str:
    return _main({"x": f"4096x4096x{operands}", "y": f"4096x{operands}"},
                 "  %r = stablehlo.dot_general %x, %y, contracting_dims = [1] x [0] : "
                 f"(tensor<4096x4096x{operands}>, tensor<4096x{operands}>) -> tensor<4096xf32>",
                 "%r", "4096xf32")


def _region(kind: str, operation: str) -> str:
    return (f"  ^bb0(%a: tensor<{kind}>, %b: tensor<{kind}>):\n"
            f"    %p = stablehlo.{operation} %a, %b : tensor<{kind}>\n"
            f"    stablehlo.return %p : tensor<{kind}>\n")


def _reduce(dimension: int, operation: str, shape: str = "4096x4096") -> str:
    start = {"add": "0.0", "maximum": "0xFF800000"}[operation]
    return _main({"x": f"{shape}xf32"},
                 f"  %z = stablehlo.constant dense<{start}> : tensor<f32>\n"
                 f"  %r = stablehlo.reduce(%x init: %z) applies stablehlo.{operation} across "
                 f"dimensions = [{dimension}] : (tensor<{shape}xf32>, tensor<f32>) -> tensor<4096xf32>",
                 "%r", "4096xf32")


def _argmax() -> str:
    return _main({"x": "4096x4096xf32"}, """\
  %i = stablehlo.iota dim = 1 : tensor<4096x4096xi32>
  %z = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %k = stablehlo.constant dense<0> : tensor<i32>
  %m, %r = stablehlo.reduce(%x init: %z), (%i init: %k) across dimensions = [1] : \
(tensor<4096x4096xf32>, tensor<4096x4096xi32>, tensor<f32>, tensor<i32>) -> (tensor<4096xf32>, tensor<4096xi32>)
   reducer(%a: tensor<f32>, %b: tensor<f32>) (%ai: tensor<i32>, %bi: tensor<i32>) {
    %gt = stablehlo.compare GT, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %ne = stablehlo.compare NE, %a, %a : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %t = stablehlo.or %gt, %ne : tensor<i1>
    %eq = stablehlo.compare EQ, %a, %b : (tensor<f32>, tensor<f32>) -> tensor<i1>
    %lt = stablehlo.compare LT, %ai, %bi : (tensor<i32>, tensor<i32>) -> tensor<i1>
    %both = stablehlo.and %eq, %lt : tensor<i1>
    %ti = stablehlo.or %t, %both : tensor<i1>
    %v = stablehlo.select %t, %a, %b : tensor<i1>, tensor<f32>
    %w = stablehlo.select %ti, %ai, %bi : tensor<i1>, tensor<i32>
    stablehlo.return %v, %w : tensor<f32>, tensor<i32>
  }""", "%r", "4096xi32")


def _softmax() -> str:
    kind = "4096x4096xf32"
    return _main({"x": kind}, f"""\
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %l = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %m = stablehlo.reduce(%x init: %l) applies stablehlo.maximum across dimensions = [1] : \
(tensor<{kind}>, tensor<f32>) -> tensor<4096xf32>
  %mb = stablehlo.broadcast_in_dim %m, dims = [0] : (tensor<4096xf32>) -> tensor<{kind}>
  %d = stablehlo.subtract %x, %mb : tensor<{kind}>
  %e = stablehlo.exponential %d : tensor<{kind}>
  %s = stablehlo.reduce(%e init: %z) applies stablehlo.add across dimensions = [1] : \
(tensor<{kind}>, tensor<f32>) -> tensor<4096xf32>
  %sb = stablehlo.broadcast_in_dim %s, dims = [0] : (tensor<4096xf32>) -> tensor<{kind}>
  %r = stablehlo.divide %e, %sb : tensor<{kind}>""", "%r", kind)


def _scan(shape: str, window: str, padding: str) -> str:
    return _main({"x": f"{shape}xf32"}, f"""\
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %r = "stablehlo.reduce_window"(%x, %z) ({{
{_region("f32", "add")}  }}) {{window_dimensions = array<i64: {window}>, padding = dense<{padding}> : \
tensor<{shape.count("x") + 1}x2xi64>}} : (tensor<{shape}xf32>, tensor<f32>) -> tensor<{shape}xf32>""",
                 "%r", f"{shape}xf32")


def _sort(kind: str, dimension: int, n_operands: int = 1) -> str:
    names = ["x", "y"][:n_operands]
    types = ", ".join([f"tensor<{kind}>"] * n_operands)
    element = kind.rsplit("x", 1)[1]
    block = ", ".join(f"%{name}{side}: tensor<{element}>" for name in names for side in "ab")
    results = ", ".join(f"%r{i}" for i in range(n_operands))
    return _main({name: kind for name in names}, f"""\
  {results} = "stablehlo.sort"({", ".join("%" + name for name in names)}) ({{
  ^bb0({block}):
    %p = stablehlo.compare LT, %xa, %xb{", TOTALORDER" if element == "f32" else ""} : (tensor<{element}>, tensor<{element}>) -> tensor<i1>
    stablehlo.return %p : tensor<i1>
  }}) {{dimension = {dimension} : i64, is_stable = true}} : ({types}) -> ({types})""",
                 f"%r{n_operands - 1}", kind)


def _transpose(element: str) -> str:
    kind = f"4096x4096x{element}"
    return _main({"x": kind}, f"  %r = stablehlo.transpose %x, dims = [1, 0] : (tensor<{kind}>) -> "
                 f"tensor<{kind}>", "%r", kind)


def _convolution(element: str, sums: str, groups: int = 1, words: str = "") -> str:
    return _main({"x": f"8x56x56x128x{element}", "w": f"3x3x{128 // groups}x128x{element}"},
                 "  %r = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->"
                 "[b, 0, 1, f], window = {stride = [1, 1], pad = [[1, 1], [1, 1]]} "
                 f"{{batch_group_count = 1 : i64, feature_group_count = {groups} : i64{words}}} : "
                 f"(tensor<8x56x56x128x{element}>, tensor<3x3x{128 // groups}x128x{element}>) -> "
                 f"tensor<8x56x56x128x{sums}>", "%r", f"8x56x56x128x{sums}")


def attention(sizes: tuple, element: str, result: str, mask: str = "none") -> str:
    """softmax(Q K^T / 4 + mask) V of (heads, groups that share keys, rows, keys, depth, width). `mask`: none,
    causal, or bias: from memory."""
    heads, groups, rows, keys, depth, width = sizes
    q, k, v = (f"{heads}x{groups}x{rows}x{depth}x{element}", f"{heads}x{keys}x{depth}x{element}",
               f"{heads}x{keys}x{width}x{element}")
    shape = f"{heads}x{groups}x{rows}x{keys}"
    scores, kept = f"{shape}xf32", f"{heads}x{groups}x{rows}xf32"
    arguments = {"q": q, "k": k, "v": v}
    masked = ""
    if mask == "causal":
        masked = f"""\
  %i = stablehlo.iota dim = 2 : tensor<{shape}xi32>
  %j = stablehlo.iota dim = 3 : tensor<{shape}xi32>
  %m = stablehlo.compare GE, %i, %j, SIGNED : (tensor<{shape}xi32>, tensor<{shape}xi32>) -> tensor<{shape}xi1>
  %low = stablehlo.constant dense<0xFF800000> : tensor<{scores}>
  %s = stablehlo.select %m, %y, %low : tensor<{shape}xi1>, tensor<{scores}>"""
    elif mask == "bias":
        arguments["b"] = f"{rows}x{keys}xf32"
        masked = f"""\
  %bs = stablehlo.broadcast_in_dim %b, dims = [2, 3] : (tensor<{rows}x{keys}xf32>) -> tensor<{scores}>
  %s = stablehlo.add %y, %bs : tensor<{scores}>"""
    logits = "%y" if mask == "none" else "%s"
    return _main(arguments, f"""\
  %x = stablehlo.dot_general %q, %k, batching_dims = [0] x [0], contracting_dims = [3] x [2] : \
(tensor<{q}>, tensor<{k}>) -> tensor<{scores}>
  %c = stablehlo.constant dense<0.25> : tensor<{scores}>
  %y = stablehlo.multiply %x, %c : tensor<{scores}>
{masked}
  %l = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %max = stablehlo.reduce({logits} init: %l) applies stablehlo.maximum across dimensions = [3] : \
(tensor<{scores}>, tensor<f32>) -> tensor<{kept}>
  %maxes = stablehlo.broadcast_in_dim %max, dims = [0, 1, 2] : (tensor<{kept}>) -> tensor<{scores}>
  %d = stablehlo.subtract {logits}, %maxes : tensor<{scores}>
  %e = stablehlo.exponential %d : tensor<{scores}>
  %z = stablehlo.constant dense<0.0> : tensor<f32>
  %sum = stablehlo.reduce(%e init: %z) applies stablehlo.add across dimensions = [3] : \
(tensor<{scores}>, tensor<f32>) -> tensor<{kept}>
  %sums = stablehlo.broadcast_in_dim %sum, dims = [0, 1, 2] : (tensor<{kept}>) -> tensor<{scores}>
  %w = stablehlo.divide %e, %sums : tensor<{scores}>
  %n = stablehlo.convert %w : (tensor<{scores}>) -> tensor<{shape}x{element}>
  %r = stablehlo.dot_general %n, %v, batching_dims = [0] x [0], contracting_dims = [3] x [1] : \
(tensor<{shape}x{element}>, tensor<{v}>) -> tensor<{heads}x{groups}x{rows}x{width}x{result}>""",
                 "%r", f"{heads}x{groups}x{rows}x{width}x{result}")


def _elementwise() -> str:
    kind = "4096x4096xf32"
    return _main({"x": kind, "y": kind}, f"""\
  %a = stablehlo.multiply %x, %y : tensor<{kind}>
  %b = stablehlo.tanh %a : tensor<{kind}>
  %r = stablehlo.add %b, %x : tensor<{kind}>""", "%r", kind)


def _persistent_loop() -> str:
    """A counted loop around a search, each of a few kernels: one shader for a workgroup."""
    return _main({"a": "64xf32"}, """\
  %z = stablehlo.constant dense<0> : tensor<i32>
  %low = stablehlo.constant dense<0xFF800000> : tensor<f32>
  %r:2 = stablehlo.while(%i = %z, %x = %a) : tensor<i32>, tensor<64xf32> cond {
    %t = stablehlo.constant dense<1000> : tensor<i32>
    %c = stablehlo.compare LT, %i, %t : (tensor<i32>, tensor<i32>) -> tensor<i1>
    stablehlo.return %c : tensor<i1>
  } do {
    %one = stablehlo.constant dense<1> : tensor<i32>
    %j = stablehlo.add %i, %one : tensor<i32>
    %s = stablehlo.sine %x : tensor<64xf32>
    %y = stablehlo.while(%w = %s) : tensor<64xf32> cond {
      %m = stablehlo.reduce(%w init: %low) applies stablehlo.maximum across dimensions = [0] : \
(tensor<64xf32>, tensor<f32>) -> tensor<f32>
      %l = stablehlo.constant dense<50.0> : tensor<f32>
      %d = stablehlo.compare LT, %m, %l : (tensor<f32>, tensor<f32>) -> tensor<i1>
      stablehlo.return %d : tensor<i1>
    } do {
      %v = stablehlo.reverse %w, dims = [0] : tensor<64xf32>
      %u = stablehlo.add %v, %w : tensor<64xf32>
      stablehlo.return %u : tensor<64xf32>
    }
    stablehlo.return %j, %y : tensor<i32>, tensor<64xf32>
  }""", "%r#1", "64xf32")


def programs() -> dict:
    return {
        "product_f32": _product(4096, "f32", "f32"),
        "product_f32_transposed": _product(4096, "f32", "f32", right=1),
        "product_f32_odd": _product(1021, "f32", "f32"),
        "product_f32_512": _product(512, "f32", "f32"),
        # In pieces on units of bf16, for hekla_matrix_pieces=all.
        "pieces_x3": _product(4096, "f32", "f32", words=", precision = [HIGH, HIGH]"),
        "pieces_x3_transposed": _product(4096, "f32", "f32", right=1, words=", precision = [HIGH, HIGH]"),
        "pieces_x3_odd": _product(1021, "f32", "f32", words=", precision = [HIGH, HIGH]"),
        "pieces_x3_512": _product(512, "f32", "f32", words=", precision = [HIGH, HIGH]"),
        "pieces_tf32": _product(4096, "f32", "f32", words=_algorithm("tf32", 1)),
        "pieces_x6": _product(4096, "f32", "f32", words=_algorithm("bf16", 6)),
        "pieces_x9": _product(4096, "f32", "f32", words=_algorithm("bf16", 9)),
        "pieces_convolution": _convolution(
            "f32", "f32", words=", precision_config = [#stablehlo<precision HIGH>, #stablehlo<precision HIGH>]"),
        "product_bf16": _product(4096, "bf16", "bf16"),
        "product_f16": _product(4096, "f16", "f16"),
        "product_i8": _product(4096, "i8", "i32"),
        "matrix_vector_f32": _vector("f32"),
        "matrix_vector_bf16": _vector("bf16"),
        "convolution_f32": _convolution("f32", "f32"),
        "convolution_bf16": _convolution("bf16", "f32"),
        "convolution_depthwise": _convolution("f32", "f32", groups=128),
        "row_sums": _reduce(1, "add"),
        "row_maxima": _reduce(1, "maximum"),
        "column_sums": _reduce(0, "add"),
        "argmax": _argmax(),
        "softmax": _softmax(),
        "scan_rows": _scan("4096x4096", "1, 4096", "[[0, 0], [4095, 0]]"),
        "scan_columns": _scan("4096x4096", "4096, 1", "[[4095, 0], [0, 0]]"),
        "scan_line": _scan("16777216", "16777216", "[[16777215, 0]]"),
        "sort_line": _sort("16777216xf32", 0),
        "sort_pairs": _sort("1048576xi32", 0, 2),
        "sort_rows": _sort("4096x1024xf32", 1),
        "transpose_f32": _transpose("f32"),
        "transpose_bf16": _transpose("bf16"),
        "elementwise": _elementwise(),
        "persistent_loop": _persistent_loop(),
        # For hekla_attention=matrix.
        "attention_bf16": attention((16, 1, 8192, 8192, 128, 128), "bf16", "bf16"),
        "attention_f16_causal": attention((8, 4, 4096, 8192, 64, 64), "f16", "f16", "causal"),
    }
