// SPDX-License-Identifier: Apache-2.0
// A bottom-up merge sort whose comparisons run side by side. All merges of one pass advance in
// step; long ones are first cut into independent pieces by a binary search along the diagonals of
// the merge matrix (Odeh, Green, Mwassi, Shmueli, Birk, "Merge Path", 2012), so that there are
// always enough pieces to fill a call of the comparator. Pieces take disjoint parts of their inputs
// whatever the comparator answers: the result is always a permutation.
#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <numeric>
#include <vector>

#include "backends/reference/kernels/dispatch.h"
#include "backends/reference/kernels/movement.h"
#include "backends/reference/kernels/region.h"
#include "backends/reference/kernels/sorting.h"

namespace hekla::reference {
namespace {

// Elements of one piece, and pieces that run side by side.
constexpr int64_t kPiece = 64;
constexpr size_t kPieces = 2048;

// Part of one merge: elements [from, to) on both sides, in order of output.
struct Piece {
  int64_t left, left_end;  // positions in the order of the previous pass
  int64_t right, right_end;
  int64_t out;
  int64_t low, high;                            // the binary search for how many come from the left
  int64_t diagonal;                             // outputs before this piece within its merge
  int64_t run_left, run_right, run_right_size;  // where the merge's runs start
  bool is_first;                                // of its merge
};

class Sorter {
 public:
  Sorter(std::span<const HostArray> inputs, ScalarFunction& comparator)
      : inputs_(inputs), comparator_(comparator) {
    for (const HostArray& input : inputs) {
      for (int side = 0; side < 2; ++side) {
        buffers_.emplace_back(static_cast<size_t>(kRegionBlock * dtype_bytes(input.dtype())));
        pointers_.push_back(buffers_.back().data());
      }
    }
    answers_.resize(kRegionBlock);
  }

  // The order in which each row of `length` elements is sorted, as positions in the whole array.
  Result<std::vector<int64_t>> sort_rows(int64_t rows, int64_t length) {
    order_.resize(static_cast<size_t>(rows * length));
    std::iota(order_.begin(), order_.end(), int64_t{0});
    next_.resize(order_.size());
    for (int64_t width = 1; width < length; width *= 2) {
      for (int64_t row = 0; row < rows; ++row) {
        const int64_t base = row * length;
        for (int64_t start = 0; start < length; start += 2 * width) {
          const int64_t middle = std::min(start + width, length);
          const int64_t end = std::min(middle + width, length);
          add_merge(base + start, base + middle, base + end);
          if (pieces_.size() >= kPieces) HEKLA_RETURN_IF_ERROR(run_pieces());
        }
      }
      HEKLA_RETURN_IF_ERROR(run_pieces());
      order_.swap(next_);
    }
    return std::move(order_);
  }

 private:
  void add_merge(int64_t start, int64_t middle, int64_t end) {
    const int64_t left_size = middle - start;
    const int64_t right_size = end - middle;
    if (right_size == 0) {
      std::copy(order_.begin() + start, order_.begin() + end, next_.begin() + start);
      return;
    }
    for (int64_t diagonal = 0; diagonal < end - start; diagonal += kPiece) {
      Piece piece{};
      piece.low = std::max<int64_t>(0, diagonal - right_size);
      piece.high = std::min(diagonal, left_size);
      piece.diagonal = diagonal;
      piece.run_left = start;
      piece.run_right = middle;
      piece.run_right_size = right_size;
      piece.left_end = middle;
      piece.right_end = end;
      piece.out = start + diagonal;
      piece.is_first = diagonal == 0;
      pieces_.push_back(piece);
    }
  }

  // Whether element a comes before element b, for pairs of positions in order_. Answers go to
  // result.
  Status compare(const std::vector<int64_t>& a, const std::vector<int64_t>& b,
                 std::vector<uint8_t>& result) {
    result.resize(a.size());
    const int64_t total = static_cast<int64_t>(a.size());
    for (int64_t start = 0; start < total; start += kRegionBlock) {
      const int64_t count = std::min(kRegionBlock, total - start);
      for (size_t i = 0; i < inputs_.size(); ++i) {
        visit_element_size(inputs_[i].dtype(), [&](auto type) {
          using T = typename decltype(type)::type;
          const T* in = inputs_[i].as<T>();
          T* left = reinterpret_cast<T*>(buffers_[2 * i].data());
          T* right = reinterpret_cast<T*>(buffers_[2 * i + 1].data());
          for (int64_t j = 0; j < count; ++j) {
            left[j] = in[order_[a[start + j]]];
            right[j] = in[order_[b[start + j]]];
          }
        });
      }
      std::byte* out = reinterpret_cast<std::byte*>(result.data() + start);
      HEKLA_RETURN_IF_ERROR(
          comparator_.apply(count, pointers_, std::span<std::byte* const>(&out, 1)));
    }
    return ok_status();
  }

  Status run_pieces() {
    HEKLA_RETURN_IF_ERROR(find_splits());
    active_.clear();
    for (size_t i = 0; i < pieces_.size(); ++i) active_.push_back(i);
    // One element of every unfinished piece a round; the right one only if it comes strictly first.
    while (true) {
      size_t kept = 0;
      a_.clear();
      b_.clear();
      for (size_t i : active_) {
        Piece& piece = pieces_[i];
        if (piece.left < piece.left_end && piece.right < piece.right_end) {
          a_.push_back(piece.right);
          b_.push_back(piece.left);
          active_[kept++] = i;
        } else {
          while (piece.left < piece.left_end) next_[piece.out++] = order_[piece.left++];
          while (piece.right < piece.right_end) next_[piece.out++] = order_[piece.right++];
        }
      }
      active_.resize(kept);
      if (kept == 0) break;
      HEKLA_RETURN_IF_ERROR(compare(a_, b_, answers_));
      for (size_t j = 0; j < kept; ++j) {
        Piece& piece = pieces_[active_[j]];
        next_[piece.out++] = order_[answers_[j] != 0 ? piece.right++ : piece.left++];
      }
    }
    pieces_.clear();
    return ok_status();
  }

  // Finds for every piece how many of the outputs before it come from the left run.
  Status find_splits() {
    while (true) {
      active_.clear();
      a_.clear();
      b_.clear();
      for (size_t i = 0; i < pieces_.size(); ++i) {
        const Piece& piece = pieces_[i];
        if (piece.low >= piece.high) continue;
        const int64_t middle = (piece.low + piece.high) / 2;
        active_.push_back(i);
        a_.push_back(piece.run_right + piece.diagonal - 1 - middle);
        b_.push_back(piece.run_left + middle);
      }
      if (active_.empty()) break;
      HEKLA_RETURN_IF_ERROR(compare(a_, b_, answers_));
      for (size_t j = 0; j < active_.size(); ++j) {
        Piece& piece = pieces_[active_[j]];
        const int64_t middle = (piece.low + piece.high) / 2;
        (answers_[j] != 0 ? piece.high : piece.low) = answers_[j] != 0 ? middle : middle + 1;
      }
    }
    int64_t before = 0;  // outputs from the left so far in this merge
    int64_t previous_diagonal = 0;
    for (size_t i = 0; i < pieces_.size(); ++i) {
      Piece& piece = pieces_[i];
      if (piece.is_first) {
        before = 0;
        previous_diagonal = 0;
      }
      // Inconsistent answers must not make the pieces overlap.
      const int64_t step = piece.diagonal - previous_diagonal;
      const int64_t least = std::max(before, piece.diagonal - piece.run_right_size);
      const int64_t most = std::min(before + step, piece.run_right - piece.run_left);
      const int64_t taken = std::clamp(piece.low, least, std::max(least, most));
      piece.left = piece.run_left + taken;
      piece.right = piece.run_right + piece.diagonal - taken;
      if (!piece.is_first) {
        pieces_[i - 1].left_end = piece.left;
        pieces_[i - 1].right_end = piece.right;
      }
      before = taken;
      previous_diagonal = piece.diagonal;
    }
    return ok_status();
  }

  std::span<const HostArray> inputs_;
  ScalarFunction& comparator_;
  std::vector<std::vector<std::byte>> buffers_;
  std::vector<const std::byte*> pointers_;
  std::vector<int64_t> order_, next_;
  std::vector<Piece> pieces_;
  std::vector<size_t> active_;
  std::vector<int64_t> a_, b_;
  std::vector<uint8_t> answers_;
};

Result<HostArray> permuted(const HostArray& array, const std::vector<int64_t>& order) {
  HEKLA_ASSIGN_OR_RETURN(HostArray result, HostArray::allocate(array.dtype(), array.dims(), false));
  std::byte* const data = result.mutable_data();
  visit_element_size(array.dtype(), [&](auto type) {
    using T = typename decltype(type)::type;
    const T* in = array.as<T>();
    T* out = reinterpret_cast<T*>(data);
    for (size_t i = 0; i < order.size(); ++i) out[i] = in[order[i]];
  });
  return result;
}

// A key whose unsigned order is the order of the values.
template <typename Codec>
uint64_t order_key(const Codec& codec, typename Codec::Storage stored) {
  using Compute = typename Codec::Compute;
  constexpr uint64_t kTop = uint64_t{1} << 63;
  if constexpr (std::is_same_v<Compute, bool>) {
    return codec.load(stored) ? 1 : 0;
  } else if constexpr (std::is_integral_v<Compute>) {
    if constexpr (std::is_signed_v<Compute>) {
      return static_cast<uint64_t>(static_cast<int64_t>(codec.load(stored))) ^ kTop;
    } else {
      return codec.load(stored);
    }
  } else if constexpr (!kIsComplex<Compute>) {
    const uint64_t bits = std::bit_cast<uint64_t>(static_cast<double>(codec.load(stored)));
    return (bits & kTop) != 0 ? ~bits : bits | kTop;
  } else {
    return 0;
  }
}

}  // namespace

Result<std::vector<HostArray>> sort(std::span<const HostArray> inputs, int64_t dimension,
                                    ScalarFunction& comparator) {
  if (inputs.empty()) return invalid_argument("sort needs one input or more");
  const HostArray& first = inputs.front();
  const int64_t dim = dimension < 0 ? dimension + first.rank() : dimension;
  if (dim < 0 || dim >= first.rank()) {
    return invalid_argument("sort of {}: there is no dimension {}", first.shape(), dimension);
  }
  bool fits = comparator.input_dtypes().size() == 2 * inputs.size() &&
              comparator.output_dtypes() == std::vector<DType>{DType::kI1};
  for (size_t i = 0; fits && i < inputs.size(); ++i) {
    fits = inputs[i].dims() == first.dims() &&
           comparator.input_dtypes()[2 * i] == inputs[i].dtype() &&
           comparator.input_dtypes()[2 * i + 1] == inputs[i].dtype();
  }
  if (!fits) {
    return invalid_argument("sort of {} and {} more: shapes differ or the comparator does not fit",
                            first.shape(), inputs.size() - 1);
  }
  const int64_t length = first.dims()[dim];
  if (first.size() == 0 || length < 2) return std::vector<HostArray>(inputs.begin(), inputs.end());
  // The sorted dimension goes last, and back afterwards: exchanging two dimensions is its own
  // inverse.
  Dims exchange(static_cast<size_t>(first.rank()));
  std::iota(exchange.begin(), exchange.end(), int64_t{0});
  std::swap(exchange[dim], exchange.back());
  std::vector<HostArray> arrays;
  for (const HostArray& input : inputs) {
    HEKLA_ASSIGN_OR_RETURN(HostArray array, transpose(input, exchange));
    arrays.push_back(std::move(array));
  }
  Sorter sorter(arrays, comparator);
  HEKLA_ASSIGN_OR_RETURN(const std::vector<int64_t> order,
                         sorter.sort_rows(first.size() / length, length));
  for (HostArray& array : arrays) {
    HEKLA_ASSIGN_OR_RETURN(array, permuted(array, order));
    HEKLA_ASSIGN_OR_RETURN(array, transpose(array, exchange));
  }
  return arrays;
}

Result<TopK> top_k(const HostArray& operand, int64_t k, bool largest) {
  if (operand.rank() < 1 || k < 0 || k > operand.dims().back() || is_complex(operand.dtype()) ||
      operand.dims().back() > std::numeric_limits<int32_t>::max()) {
    return invalid_argument("top_k of {}: there are no {} ordered elements in the last dimension",
                            operand.shape(), k);
  }
  Dims dims = operand.dims();
  const int64_t length = dims.back();
  dims.back() = k;
  HEKLA_ASSIGN_OR_RETURN(HostArray values, HostArray::allocate(operand.dtype(), dims, false));
  HEKLA_ASSIGN_OR_RETURN(HostArray indices, HostArray::allocate(DType::kI32, dims, false));
  const int64_t rows = values.size() == 0 ? 0 : operand.size() / length;
  int32_t* index_out = indices.mutable_as<int32_t>();
  std::byte* const value_bytes = values.mutable_data();
  std::vector<uint64_t> keys(static_cast<size_t>(length));
  std::vector<int32_t> order(static_cast<size_t>(length));
  visit_dtype(operand.dtype(), [&](auto codec) {
    using Storage = typename decltype(codec)::Storage;
    auto* out = reinterpret_cast<Storage*>(value_bytes);
    for (int64_t row = 0; row < rows; ++row) {
      const Storage* in = operand.as<Storage>() + row * length;
      for (int64_t i = 0; i < length; ++i) {
        const uint64_t key = order_key(codec, in[i]);
        keys[i] = largest ? ~key : key;
      }
      std::iota(order.begin(), order.end(), 0);
      std::partial_sort(order.begin(), order.begin() + k, order.end(), [&](int32_t a, int32_t b) {
        return keys[a] != keys[b] ? keys[a] < keys[b] : a < b;
      });
      for (int64_t i = 0; i < k; ++i) {
        index_out[row * k + i] = order[i];
        out[row * k + i] = in[order[i]];
      }
    }
  });
  return TopK{std::move(values), std::move(indices)};
}

}  // namespace hekla::reference
