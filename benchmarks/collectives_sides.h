// SPDX-License-Identifier: Apache-2.0
// What the programs of collectives.py share: arguments, and the loop that measures.
//
// Started as PROGRAM RANK SIZE FOLDER OPERATION SIZES: a row for each of the sizes, bytes of the
// f32 array that all ranks have in the end or had together (of reduce_scatter the input, of
// all_gather the output), is printed by rank 0: "BYTES BEST MEDIAN CALLS", in microseconds.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

namespace hekla::benchmarks {

struct Arguments {
  int rank, size;
  std::string folder, operation;
  std::vector<int64_t> sizes;
};

inline Arguments arguments_of(char** words) {
  Arguments arguments{std::atoi(words[1]), std::atoi(words[2]), words[3], words[4], {}};
  for (const char* at = words[5]; *at != 0;) {
    char* end = nullptr;
    arguments.sizes.push_back(std::strtoll(at, &end, 10));
    at = *end == ',' ? end + 1 : end;
  }
  return arguments;
}

[[noreturn]] inline void give_up(const std::string& why) {
  std::fprintf(stderr, "%s\n", why.c_str());
  std::_Exit(1);
}

// A call on arrays of `count` elements in all: done when it returns.
using Call = std::function<void(float* out, const float* in, int64_t count)>;

// `agree` makes rank 0's number that of all ranks. Sums and order of what comes are checked once.
inline void measure(const Arguments& arguments, const Call& call,
                    const std::function<int64_t(int64_t)>& agree) {
  using Clock = std::chrono::steady_clock;
  for (const int64_t bytes : arguments.sizes) {
    const int64_t count = std::max<int64_t>(bytes / 4, 1), part = count / arguments.size;
    const std::string& op = arguments.operation;
    std::vector<float> in(static_cast<size_t>(count), static_cast<float>(arguments.rank + 1));
    std::vector<float> out(static_cast<size_t>(count), 0);
    if (op == "broadcast" && arguments.rank == 0) out.assign(out.size(), 7);
    call(out.data(), in.data(), count);
    const float sum = static_cast<float>(arguments.size * (arguments.size + 1) / 2);
    const int64_t last = op == "reduce_scatter" ? part - 1
                         : op == "all_gather"   ? part * arguments.size - 1
                                                : count - 1;
    const float wanted = op == "broadcast"    ? 7
                         : op == "all_gather" ? static_cast<float>(arguments.size)
                                              : sum;
    if (op != "barrier" && last >= 0 && out[static_cast<size_t>(last)] != wanted) {
      give_up(op + " gives a wrong result");
    }
    std::vector<double> times;
    const auto once = [&] {
      const Clock::time_point begin = Clock::now();
      call(out.data(), in.data(), count);
      times.push_back(std::chrono::duration<double, std::micro>(Clock::now() - begin).count());
    };
    for (int i = 0; i < 5; ++i) once();
    const double seen = *std::min_element(times.begin() + 1, times.end());
    constexpr double kMicroseconds = 250e3;
    const int64_t calls =
        agree(std::clamp<int64_t>(static_cast<int64_t>(kMicroseconds / seen), 8, 20000));
    times.clear();
    for (int64_t i = 0; i < calls; ++i) once();
    std::sort(times.begin(), times.end());
    if (arguments.rank == 0) {
      std::printf("%lld %.3f %.3f %lld\n", static_cast<long long>(bytes), times.front(),
                  times[times.size() / 2], static_cast<long long>(calls));
    }
  }
  std::fflush(stdout);
}

}  // namespace hekla::benchmarks
