// SPDX-License-Identifier: Apache-2.0
// The generators of Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3",
// 2011, with the counters and the order of outputs that XLA uses.
#include "backends/reference/kernels/rng.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <numbers>

#include "backends/reference/kernels/dispatch.h"

namespace hekla::reference {
namespace {

using Words2 = std::array<uint32_t, 2>;
using Words4 = std::array<uint32_t, 4>;

uint32_t low(uint64_t value) { return static_cast<uint32_t>(value); }
uint32_t high(uint64_t value) { return static_cast<uint32_t>(value >> 32); }
uint64_t join(uint32_t low, uint32_t high) { return low | static_cast<uint64_t>(high) << 32; }

// Threefry 2x32, 20 rounds.
Words2 threefry(uint64_t counter, uint64_t key) {
  constexpr std::array<int, 8> kRotations = {13, 15, 26, 6, 17, 29, 16, 24};
  constexpr uint32_t kParity = 0x1bd11bda;
  const std::array<uint32_t, 3> keys = {low(key), high(key), kParity ^ low(key) ^ high(key)};
  uint32_t x = low(counter) + keys[0];
  uint32_t y = high(counter) + keys[1];
  for (uint32_t group = 0; group < 5; ++group) {
    for (uint32_t i = 0; i < 4; ++i) {
      x += y;
      y = std::rotl(y, kRotations[group % 2 * 4 + i]) ^ x;
    }
    x += keys[(group + 1) % 3];
    y += keys[(group + 2) % 3] + group + 1;
  }
  return {x, y};
}

// Philox 4x32, 10 rounds; the counter is the 128-bit number `counter_low`, `counter_high`.
Words4 philox(uint64_t counter_low, uint64_t counter_high, uint64_t key) {
  Words4 x = {low(counter_low), high(counter_low), low(counter_high), high(counter_high)};
  uint32_t key0 = low(key);
  uint32_t key1 = high(key);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = static_cast<uint64_t>(x[0]) * 0xd2511f53u;
    const uint64_t p1 = static_cast<uint64_t>(x[2]) * 0xcd9e8d57u;
    x = {high(p1) ^ x[1] ^ key0, low(p1), high(p0) ^ x[3] ^ key1, low(p0)};
    key0 += 0x9e3779b9u;
    key1 += 0xbb67ae85u;
  }
  return x;
}

void store_bits(std::byte* out, int64_t position, int64_t bytes, uint64_t bits) {
  std::memcpy(out + position * bytes, &bits, static_cast<size_t>(bytes));  // little-endian
}

// For up to 32 bits XLA makes two words of each counter and interleaves them along the first even
// dimension, or along the largest one (padded to even) where all are odd. Returns the counters
// used.
int64_t threefry_output(uint64_t key, uint64_t counter, const Dims& dims, int64_t bytes,
                        int64_t count, std::byte* out) {
  if (bytes == 8) {
    for (int64_t i = 0; i < count; ++i) {
      const Words2 words = threefry(counter + static_cast<uint64_t>(i), key);
      store_bits(out, i, bytes, join(words[0], words[1]));
    }
    return count;
  }
  size_t split = 0;
  bool is_even = false;
  for (size_t d = 0; d < dims.size() && !is_even; ++d) {
    is_even = dims[d] % 2 == 0;
    if (is_even || dims[d] > dims[split]) split = d;
  }
  const int64_t size = dims.empty() ? 1 : dims[split];
  const int64_t inner = dims.empty() ? 1 : element_count(std::span(dims).subspan(split + 1));
  const int64_t half = (size + 1) / 2;
  if (count == 0) return 0;
  const int64_t outer = count / (size * inner);
  for (int64_t o = 0; o < outer; ++o) {
    for (int64_t h = 0; h < half; ++h) {
      for (int64_t i = 0; i < inner; ++i) {
        const uint64_t offset = static_cast<uint64_t>((o * half + h) * inner + i);
        const Words2 words = threefry(counter + offset, key);
        const int64_t at = (o * size + 2 * h) * inner + i;
        store_bits(out, at, bytes, words[0]);
        if (2 * h + 1 < size) store_bits(out, at + inner, bytes, words[1]);
      }
    }
  }
  return outer * half * inner;
}

}  // namespace

Result<RngBits> rng_bit_generator(const HostArray& initial_state, RngAlgorithm rng_algorithm,
                                  DType output_dtype, const Dims& output_dims) {
  const bool is_philox = rng_algorithm != RngAlgorithm::kThreeFry;
  const int64_t state_bytes = initial_state.size_bytes();
  if (!is_unsigned_integer(initial_state.dtype()) || dtype_bits(initial_state.dtype()) < 8 ||
      (state_bytes != 16 && !(is_philox && state_bytes == 24))) {
    return invalid_argument(
        "rng_bit_generator: the state {} is not ui64[2] (Threefry, Philox) or ui64[3] (Philox)",
        initial_state.shape());
  }
  if (dtype_bits(output_dtype) < 8 || is_complex(output_dtype) || output_dtype == DType::kTF32) {
    return invalid_argument("rng_bit_generator: no random bits of dtype {}",
                            dtype_name(output_dtype));
  }
  std::array<uint64_t, 3> state{};
  std::memcpy(state.data(), initial_state.data(), static_cast<size_t>(state_bytes));
  HEKLA_ASSIGN_OR_RETURN(HostArray output, HostArray::allocate(output_dtype, output_dims));
  const int64_t bytes = dtype_bytes(output_dtype);
  const int64_t count = output.size();
  std::byte* out = output.mutable_data();
  if (!is_philox) {
    state[1] +=
        static_cast<uint64_t>(threefry_output(state[0], state[1], output_dims, bytes, count, out));
  } else {
    // With two words of state the key is also the counter's upper half, which is not given back.
    const uint64_t upper = state_bytes == 24 ? state[2] : state[0];
    const auto at = [&](uint64_t i) {
      const uint64_t lower = state[1] + i;
      return philox(lower, upper + (lower < i ? 1 : 0), state[0]);
    };
    const int64_t per_block = bytes == 8 ? 2 : 4;
    const int64_t blocks = (count + per_block - 1) / per_block;
    for (int64_t block = 0; block < blocks; ++block) {
      const Words4 words = at(static_cast<uint64_t>(block));
      for (int64_t i = 0; i < per_block && block * per_block + i < count; ++i) {
        store_bits(out, block * per_block + i, bytes,
                   bytes == 8 ? join(words[2 * i], words[2 * i + 1]) : words[i]);
      }
    }
    state[1] += static_cast<uint64_t>(blocks);
    if (state_bytes == 24 && state[1] < static_cast<uint64_t>(blocks)) ++state[2];
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray output_state,
                         HostArray::allocate(initial_state.dtype(), initial_state.dims(), false));
  std::memcpy(output_state.mutable_data(), state.data(), static_cast<size_t>(state_bytes));
  return RngBits{std::move(output_state), std::move(output)};
}

Result<HostArray> rng(const HostArray& a, const HostArray& b, const Dims& dims,
                      RngDistribution rng_distribution, uint64_t seed) {
  const DType dtype = a.dtype();
  const bool is_uniform = rng_distribution == RngDistribution::kUniform;
  if (b.dtype() != dtype || a.size() != 1 || b.size() != 1 || is_complex(dtype) ||
      (!is_uniform && !is_float(dtype))) {
    return invalid_argument("rng: no {} numbers between {} and {}",
                            is_uniform ? "uniform" : "normal", a.shape(), b.shape());
  }
  HEKLA_ASSIGN_OR_RETURN(HostArray result, HostArray::allocate(dtype, dims, false));
  std::byte* const data = result.mutable_data();
  visit_dtype(dtype, [&](auto codec) {
    using Codec = decltype(codec);
    using Compute = typename Codec::Compute;
    using Storage = typename Codec::Storage;
    auto* out = reinterpret_cast<Storage*>(data);
    const auto first = codec.load(*a.as<Storage>());
    const auto second = codec.load(*b.as<Storage>());
    for (int64_t i = 0; i < result.size(); ++i) {
      const Words4 words = philox(static_cast<uint64_t>(i), 0, seed);
      const uint64_t bits = join(words[0], words[1]);
      if constexpr (std::is_floating_point_v<Compute>) {
        const double lower = static_cast<double>(first);
        const double upper = static_cast<double>(second);
        const double unit = static_cast<double>(bits >> 11) * 0x1p-53;
        if (is_uniform) {
          out[i] = codec.store(static_cast<Compute>(lower + unit * (upper - lower)));
          // Rounding can reach the open end.
          if (!(codec.load(out[i]) < second)) out[i] = codec.store(first);
        } else {
          // G. Box, M. Muller, "A note on the generation of random normal deviates", 1958.
          const double angle =
              2 * std::numbers::pi * static_cast<double>(join(words[2], words[3]) >> 11) * 0x1p-53;
          const double normal = std::sqrt(-2 * std::log(1 - unit)) * std::cos(angle);
          out[i] = codec.store(static_cast<Compute>(lower + upper * normal));
        }
      } else if constexpr (std::is_integral_v<Compute>) {
        // The upper half of a 64 x 64 bit product is uniform in [0, range).
        const uint64_t range = static_cast<uint64_t>(second) - static_cast<uint64_t>(first);
        const auto offset =
            static_cast<uint64_t>((static_cast<unsigned __int128>(bits) * range) >> 64);
        const uint64_t value = static_cast<uint64_t>(first) + (second > first ? offset : 0);
        out[i] = codec.store(static_cast<Compute>(value));
      }
    }
  });
  return result;
}

}  // namespace hekla::reference
