// SPDX-License-Identifier: Apache-2.0
#include "tests/kernel_math/accuracy.h"

#include <quadmath.h>

#include <bit>
#include <cmath>
#include <map>
#include <random>

#include "backends/compiler/kernel/math/element.h"
#include "tests/kernel_math/kernel_runner.h"

namespace hekla::kernel {
namespace {

using ir::OpCode;
using Quad = __float128;

struct Oracle {
  double (*narrow)(double, double);
  Quad (*wide)(Quad, Quad);
  bool is_binary = false;
};

const std::map<OpCode, Oracle>& oracles() {
  static const std::map<OpCode, Oracle> table = {
      {OpCode::kExponential,
       {[](double x, double) { return std::exp(x); }, [](Quad x, Quad) { return expq(x); }}},
      {OpCode::kExponentialMinusOne,
       {[](double x, double) { return std::expm1(x); }, [](Quad x, Quad) { return expm1q(x); }}},
      {OpCode::kLog,
       {[](double x, double) { return std::log(x); }, [](Quad x, Quad) { return logq(x); }}},
      {OpCode::kLogPlusOne,
       {[](double x, double) { return std::log1p(x); }, [](Quad x, Quad) { return log1pq(x); }}},
      {OpCode::kTanh,
       {[](double x, double) { return std::tanh(x); }, [](Quad x, Quad) { return tanhq(x); }}},
      {OpCode::kLogistic,
       {[](double x, double) { return 1 / (1 + std::exp(-x)); },
        [](Quad x, Quad) { return 1 / (1 + expq(-x)); }}},
      {OpCode::kRsqrt,
       {[](double x, double) { return 1 / std::sqrt(x); },
        [](Quad x, Quad) { return 1 / sqrtq(x); }}},
      {OpCode::kCbrt,
       {[](double x, double) { return std::cbrt(x); }, [](Quad x, Quad) { return cbrtq(x); }}},
      {OpCode::kSine,
       {[](double x, double) { return std::sin(x); }, [](Quad x, Quad) { return sinq(x); }}},
      {OpCode::kCosine,
       {[](double x, double) { return std::cos(x); }, [](Quad x, Quad) { return cosq(x); }}},
      {OpCode::kTan,
       {[](double x, double) { return std::tan(x); }, [](Quad x, Quad) { return tanq(x); }}},
      {OpCode::kPower,
       {[](double x, double y) { return std::pow(x, y); },
        [](Quad x, Quad y) { return powq(x, y); }, true}},
      {OpCode::kAtan2,
       {[](double x, double y) { return std::atan2(x, y); },
        [](Quad x, Quad y) { return atan2q(x, y); }, true}},
  };
  return table;
}

template <typename T>
struct Traits;
template <>
struct Traits<float> {
  static constexpr int kMantissa = 23, kMin = -126, kMax = 128;
  using Bits = uint32_t;
  using Exact = double;
  static Exact call(const Oracle& o, float x, float y) { return o.narrow(x, y); }
  static int exponent(Exact v) { return std::ilogb(v); }
  static bool signbit(Exact v) { return std::signbit(v); }
  static Exact ldexp(Exact v, int e) { return std::ldexp(v, e); }
};
template <>
struct Traits<double> {
  static constexpr int kMantissa = 52, kMin = -1022, kMax = 1024;
  using Bits = uint64_t;
  using Exact = Quad;
  static Exact call(const Oracle& o, double x, double y) {
    return o.wide(static_cast<Quad>(x), static_cast<Quad>(y));
  }
  static int exponent(Exact v) { return ilogbq(v); }
  static bool signbit(Exact v) { return signbitq(v) != 0; }
  static Exact ldexp(Exact v, int e) { return scalbnq(v, e); }
};

template <typename T>
double error_in_ulp(T ours, typename Traits<T>::Exact exact) {
  using Tr = Traits<T>;
  using Exact = typename Tr::Exact;
  if (exact != exact) return std::isnan(ours) ? 0 : kWrong;
  if (std::isnan(ours)) return kWrong;
  const Exact limit = Tr::ldexp(1, Tr::kMax);
  Exact value = static_cast<Exact>(ours);
  if (std::isinf(ours)) value = ours > 0 ? limit : -limit;
  // Beyond the range all numbers are the first that is too large.
  if (exact > limit) exact = limit;
  if (exact < -limit) exact = -limit;
  if (exact == 0) {
    if (value != 0) return kWrong;
    return std::signbit(ours) == Tr::signbit(exact) ? 0 : kWrong;
  }
  if (value == 0 && std::signbit(ours) != (exact < 0)) return kWrong;
  int exponent = Tr::exponent(exact);
  if (exponent < Tr::kMin) exponent = Tr::kMin;
  if (exponent >= Tr::kMax) exponent = Tr::kMax - 1;
  const Exact error = value > exact ? value - exact : exact - value;
  return static_cast<double>(Tr::ldexp(error, Tr::kMantissa - exponent));
}

template <typename T>
std::vector<T> edge_values() {
  constexpr T kInf = std::numeric_limits<T>::infinity();
  std::vector<T> values = {0,
                           1,
                           T(0.5),
                           2,
                           3,
                           T(1.5),
                           10,
                           100,
                           kInf,
                           std::numeric_limits<T>::max(),
                           std::numeric_limits<T>::min(),
                           std::numeric_limits<T>::denorm_min(),
                           T(88.72283),
                           T(88.72284),
                           T(709.782712893384),
                           T(103.97),
                           T(103.98),
                           T(745.13),
                           T(745.14),
                           T(0.33),
                           T(0.55),
                           T(0.41421356),
                           T(0.2928932),
                           T(17.32868),
                           T(0.25),
                           T(7),
                           T(16777215),
                           T(16777216),
                           T(16777217)};
  const size_t count = values.size();
  for (size_t i = 0; i < count; ++i) {
    values.push_back(std::nextafter(values[i], T(0)));
    values.push_back(std::nextafter(values[i], kInf));
  }
  const size_t positive = values.size();
  for (size_t i = 0; i < positive; ++i) values.push_back(-values[i]);
  values.push_back(std::numeric_limits<T>::quiet_NaN());
  return values;
}

template <typename T>
std::vector<T> unary_points(int density) {
  using Bits = typename Traits<T>::Bits;
  constexpr int kMantissa = Traits<T>::kMantissa;
  std::mt19937_64 random(3);
  std::vector<T> points = edge_values<T>();
  const Bits exponents = Bits(Traits<T>::kMax) * 2;
  for (Bits e = 0; e + 1 < exponents; ++e) {
    for (int i = 0; i < density; ++i) {
      const Bits mantissa = static_cast<Bits>(random()) & ((Bits{1} << kMantissa) - 1);
      const T x = std::bit_cast<T>(static_cast<Bits>(e << kMantissa | mantissa));
      points.push_back(x);
      points.push_back(-x);
    }
  }
  // The arguments that matter, evenly; neighbours of multiples of pi/4, and of 1.
  const int dense = density * 100;
  for (double range : {1.0, 4.0, 20.0, 110.0, 750.0, 10000.0}) {
    std::uniform_real_distribution<double> uniform(-range, range);
    for (int i = 0; i < dense; ++i) points.push_back(static_cast<T>(uniform(random)));
  }
  for (int i = 1; i < dense / 4; ++i) {
    T x = static_cast<T>(i * 0.78539816339744830962);
    points.push_back(x);
    points.push_back(std::nextafter(x, T(0)));
    points.push_back(-std::nextafter(x, T(1e9)));
    std::normal_distribution<double> near_one(1, std::ldexp(1.0, -(i % 30)));
    points.push_back(static_cast<T>(near_one(random)));
  }
  return points;
}

template <typename T>
void binary_points(OpCode code, int density, std::vector<T>& xs, std::vector<T>& ys) {
  std::mt19937_64 random(4);
  const std::vector<T> edges = edge_values<T>();
  for (T x : edges) {
    for (T y : edges) {
      xs.push_back(x);
      ys.push_back(y);
    }
  }
  const auto add = [&](double x, double y) {
    xs.push_back(static_cast<T>(x));
    ys.push_back(static_cast<T>(y));
  };
  const double top = Traits<T>::kMax;
  std::uniform_real_distribution<double> fraction(1, 2), exponent(-top - 20, top), small(-30, 30);
  std::uniform_real_distribution<double> result(-top - 30, top + 3);
  for (int i = 0; i < density * 200; ++i) {
    const double sign = (i & 1) != 0 ? -1 : 1;
    if (code == OpCode::kAtan2) {
      const double e = exponent(random);
      add(sign * fraction(random) * std::exp2(e), small(random) * std::exp2(e));
      add(small(random), small(random));
      add(small(random) * std::exp2(-e), sign * std::exp2(small(random)));
      continue;
    }
    // Powers whose results lie in the range, for bases far from 1, near 1, and whole exponents.
    const double base = std::exp2((i & 2) != 0 ? exponent(random) : small(random) / 10);
    const double near = 1 + small(random) * std::exp2(small(random) / 3 - 20);
    const T x = static_cast<T>(base), n = static_cast<T>(near > 0 ? near : 0.5);
    add(x, result(random) / std::log2(static_cast<double>(x)));
    add(n, result(random) / std::log2(static_cast<double>(n)));
    const double whole = std::round(small(random));
    add(sign * std::exp2(exponent(random) / (std::fabs(whole) + 1)), whole);
    add(std::fabs(small(random)), small(random) / 4);
  }
}

template <typename T>
Accuracy measure_type(OpCode code, DType dtype, Fma fma, int density) {
  const Oracle& oracle = oracles().at(code);
  std::vector<T> xs, ys;
  if (oracle.is_binary) {
    binary_points(code, density, xs, ys);
  } else {
    xs = unary_points<T>(density);
  }
  const Dims dims = {static_cast<int64_t>(xs.size())};
  std::vector<HostArray> operands = {HostArray::from<T>(dtype, dims, xs)};
  if (oracle.is_binary) operands.push_back(HostArray::from<T>(dtype, dims, ys));
  const auto results = run_expansion(
      dtype, operands,
      [&](Builder& b, const std::vector<Element>& e) {
        return oracle.is_binary ? binary(b, code, dtype, e[0], e[1]) : unary(b, code, dtype, e[0]);
      },
      fma);
  Accuracy worst;
  if (!results) {
    worst.max_ulp = kWrong;
    return worst;
  }
  worst.points = dims[0];
  for (size_t i = 0; i < xs.size(); ++i) {
    const T y = oracle.is_binary ? ys[i] : T(0);
    const auto exact = Traits<T>::call(oracle, xs[i], y);
    const T ours = results->template as<T>()[i];
    const double error = error_in_ulp<T>(ours, exact);
    if (error > worst.max_ulp) {
      worst.max_ulp = error;
      worst.x = xs[i];
      worst.y = y;
      worst.result = ours;
      worst.wanted = static_cast<double>(exact);
    }
  }
  return worst;
}

}  // namespace

std::vector<OpCode> measured_functions() {
  std::vector<OpCode> codes;
  for (const auto& [code, oracle] : oracles()) codes.push_back(code);
  return codes;
}

Accuracy measure(OpCode code, DType dtype, Fma fma, int density) {
  return dtype == DType::kF32 ? measure_type<float>(code, dtype, fma, density)
                              : measure_type<double>(code, dtype, fma, std::max(1, density / 16));
}

}  // namespace hekla::kernel
