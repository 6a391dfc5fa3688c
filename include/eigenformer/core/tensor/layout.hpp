#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/core/base/random.hpp"
#include "eigenformer/core/tensor/shape.hpp"

namespace eigenformer {

/// Which rows of a (rows, D) matrix belong to which sequence of a batch. Immutable; copies share its data.
///
/// In a *padded* layout every sequence has the same number of rows, the usual (B, L, D); in a *packed* one
/// the sequences follow each other without padding, (N, D); a *cached* one is a padded layout of sequences
/// that still grow. All functions throw ShapeError for more than max_batch sequences, for more than
/// Shape::max_numel rows and for higher positions.
class SequenceLayout {
 public:
  /// The most sequences of a layout, which then takes half a gigabyte.
  static constexpr index_t max_batch = index_t{1} << 24;

  /// No sequences.
  SequenceLayout() : SequenceLayout(Fields{}) {}

  /// Sequences of the given lengths with max_length rows each; the rows after a length are padding. Throws
  /// ValueError for a length below 0 or above max_length.
  static SequenceLayout padded(std::vector<index_t> lengths, index_t max_length) {
    return strided("maximum length", std::move(lengths), max_length, max_length);
  }

  /// Sequences of the given lengths, padded on the left to max_length rows each: the last lengths[b] rows of
  /// sequence b are its tokens, the first of them at position 0. Throws ValueError as padded() does.
  static SequenceLayout padded_left(const std::vector<index_t>& lengths, index_t max_length) {
    (void)padded(lengths, max_length);  // throws before a difference could overflow
    std::vector<index_t> leading(lengths.size());
    for (std::size_t b = 0; b < lengths.size(); ++b) leading[b] = max_length - lengths[b];
    return padded_around(leading, lengths, max_length);
  }

  /// Sequences with padding on both sides: leading[b] rows of padding, lengths[b] tokens, and padding up to
  /// max_length rows. Throws ValueError as padded() does, for leading rows and tokens that exceed max_length,
  /// and unless `leading` has one number for each sequence.
  static SequenceLayout padded_around(const std::vector<index_t>& leading,
                                      const std::vector<index_t>& lengths, index_t max_length) {
    const SequenceLayout right = padded(lengths, max_length);
    right.check_count("numbers of leading rows", leading.size());
    Fields f = right.fields();
    for (std::size_t b = 0; b < lengths.size(); ++b) {
      if (leading[b] < 0 || leading[b] > max_length - lengths[b]) {
        throw ValueError("layout", {"sequence ", b, " has ", leading[b], " leading rows and ", lengths[b],
                                    " tokens, which must fit in ", max_length, " rows"});
      }
      f.offsets[b] += leading[b];
    }
    return SequenceLayout(std::move(f));
  }

  /// `batch` sequences of max_length tokens each, without padding. Throws ValueError for negative numbers.
  static SequenceLayout padded(std::integral auto batch, index_t max_length) {
    if (batch < 0) throw ValueError("layout", {"batch is ", batch, ", must not be negative"});
    check_rows("maximum length", batch, max_length);
    return padded(std::vector<index_t>(static_cast<std::size_t>(batch), max_length), max_length);
  }

  /// Sequences of the given lengths, one after the other. Throws ValueError for a length below 0.
  static SequenceLayout packed(std::vector<index_t> lengths) {
    Fields f;
    f.packed = true;
    f.offsets.clear();
    check_batch(static_cast<index_t>(lengths.size()));
    index_t row = 0;
    for (std::size_t b = 0; b < lengths.size(); ++b) {
      if (lengths[b] < 0) refuse_length(b, lengths[b], "must not be negative");
      if (lengths[b] > Shape::max_numel - row) {
        throw ShapeError("layout",
                         {"length of sequence ", b, " is ", lengths[b], ", more rows than any memory holds"});
      }
      f.offsets.push_back(row);
      row += lengths[b];
      f.max_length = std::max(f.max_length, lengths[b]);
    }
    f.offsets.push_back(row);
    return finish(std::move(f), std::move(lengths));
  }

  /// Sequences of the given lengths in blocks of `capacity` rows each, as the keys and values of a decoder's
  /// cache: rows as in a padded layout, but max_length() is that of the longest sequence. Throws ValueError
  /// as padded() does.
  static SequenceLayout cached(std::vector<index_t> lengths, index_t capacity) {
    const index_t longest = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
    return strided("capacity", std::move(lengths), capacity, longest);
  }

  /// A layout of the same rows in which sequence b has the number numbers[b] in the epoch. Dropout masks
  /// depend on that number and not on the batch. Throws ValueError unless there is one for each sequence.
  [[nodiscard]] SequenceLayout with_sequence_numbers(std::vector<std::uint32_t> numbers) const {
    Fields f = fields();
    check_count("sequence numbers", numbers.size());
    f.numbers = std::move(numbers);
    return SequenceLayout(std::move(f));
  }

  /// A layout of the same rows in which the first token of sequence b has position first[b], as in decoding
  /// with a cache. Throws ValueError for a negative position and unless there is one for each sequence.
  [[nodiscard]] SequenceLayout with_first_position(std::vector<index_t> first) const {
    Fields f = fields();
    check_count("first positions", first.size());
    for (std::size_t b = 0; b < first.size(); ++b) {
      if (first[b] < 0) {
        throw ValueError("layout",
                         {"first position of sequence ", b, " is ", first[b], ", must not be negative"});
      }
      if (first[b] > Shape::max_numel) {
        throw ShapeError("layout", {"first position of sequence ", b, " is ", first[b], ", must be at most ",
                                    Shape::max_numel});
      }
    }
    f.positions = std::move(first);
    return SequenceLayout(std::move(f));
  }
  /// The same with one position for all sequences.
  [[nodiscard]] SequenceLayout with_first_position(index_t first) const {
    return with_first_position(std::vector<index_t>(fields().lengths.size(), first));
  }

  /// Number of sequences.
  index_t batch() const noexcept { return static_cast<index_t>(fields().lengths.size()); }
  /// Tokens of the longest sequence (packed, cached), or rows of each sequence (padded).
  index_t max_length() const noexcept { return fields().max_length; }
  /// Rows of the matrix, padding included.
  index_t rows() const noexcept { return fields().offsets.back(); }
  /// Tokens of all sequences, without padding.
  index_t tokens() const noexcept { return fields().tokens; }
  /// Whether it was made by packed().
  bool is_packed() const noexcept { return fields().packed; }

  /// Tokens of sequence b, without padding. Throws IndexError when there is no sequence b.
  index_t length(index_t b) const { return fields().lengths[checked(b)]; }
  /// Row of the first token of sequence b, after any padding on its left. Throws as length().
  index_t offset(index_t b) const { return fields().offsets[checked(b)]; }
  /// Position of the first token of sequence b, 0 unless with_first_position() set it. Throws as length().
  index_t position(index_t b) const { return fields().positions[checked(b)]; }
  /// Number of sequence b in the epoch, b unless with_sequence_numbers() set it. Throws as length().
  std::uint32_t sequence_number(index_t b) const { return fields().numbers[checked(b)]; }

  /// Rows of padding on the left of sequence b. Throws as length().
  index_t leading(index_t b) const {
    const Fields& f = fields();
    return f.offsets[checked(b)] - (f.packed ? f.offsets[checked(b)] : b * f.stride);
  }

  /// length() of every sequence; a view that ends with this layout and its copies, as the next three.
  std::span<const index_t> lengths() const noexcept { return fields().lengths; }
  /// offset() of every sequence, followed by rows(): batch() + 1 numbers.
  std::span<const index_t> offsets() const noexcept { return fields().offsets; }
  /// position() of every sequence.
  std::span<const index_t> positions() const noexcept { return fields().positions; }
  /// sequence_number() of every sequence.
  std::span<const std::uint32_t> sequence_numbers() const noexcept { return fields().numbers; }

  /// The RowKey (sequence number, position) of every row, padding included: rows() of them, computed by the
  /// first call and shared by later ones and by copies. Thread-safe. Throws ShapeError for more than 2^32
  /// rows, whose positions a RowKey cannot hold.
  std::shared_ptr<const std::vector<detail::RowKey>> row_keys() const {
    std::call_once(data_->once, [this] {
      const Fields& f = fields();
      if (rows() > index_t{1} << 32) {
        throw ShapeError("layout",
                         {"keys of ", rows(), " rows are requested, there must be at most 4294967296"});
      }
      auto keys = std::make_shared<std::vector<detail::RowKey>>();
      keys->reserve(static_cast<std::size_t>(rows()));
      if (!f.lengths.empty())
        keys->assign(static_cast<std::size_t>(f.offsets[0]), detail::RowKey{f.numbers[0], 0});
      for (std::size_t b = 0; b < f.lengths.size(); ++b) {
        for (index_t i = 0; i < f.offsets[b + 1] - f.offsets[b]; ++i) {
          keys->push_back(detail::RowKey{f.numbers[b], static_cast<std::uint32_t>(f.positions[b] + i)});
        }
      }
      data_->row_keys = std::move(keys);
    });
    return data_->row_keys;
  }

  /// Whether kind, rows, lengths, sequence numbers and first positions agree.
  friend bool operator==(const SequenceLayout& a, const SequenceLayout& b) {
    return a.data_ == b.data_ || a.fields() == b.fields();
  }

 private:
  struct Fields {
    std::vector<index_t> lengths;
    std::vector<index_t> offsets{0};
    std::vector<index_t> positions;
    std::vector<std::uint32_t> numbers;
    index_t max_length = 0;
    index_t stride = 0;  // rows from the block of one sequence to the next; unused in packed layouts
    index_t tokens = 0;
    bool packed = false;
    bool operator==(const Fields&) const = default;
  };
  struct Data {
    Fields fields;
    std::once_flag once;
    std::shared_ptr<const std::vector<detail::RowKey>> row_keys;
  };

  explicit SequenceLayout(Fields fields) : data_(std::make_shared<Data>()) {
    data_->fields = std::move(fields);
  }

  static SequenceLayout strided(const char* limit, std::vector<index_t> lengths, index_t stride,
                                index_t longest) {
    if (stride < 0) {
      throw ValueError("layout", {limit, " is ", stride, ", must not be negative"});
    }
    check_rows(limit, static_cast<index_t>(lengths.size()), stride);
    Fields f;
    f.max_length = longest;
    f.stride = stride;
    f.offsets.clear();
    for (std::size_t b = 0; b < lengths.size(); ++b) {
      if (lengths[b] < 0) refuse_length(b, lengths[b], "must not be negative");
      if (lengths[b] > stride) {
        refuse_length(b, lengths[b], "exceeds the " + std::string(limit) + " " + std::to_string(stride));
      }
      f.offsets.push_back(static_cast<index_t>(b) * stride);
    }
    f.offsets.push_back(static_cast<index_t>(lengths.size()) * stride);
    return finish(std::move(f), std::move(lengths));
  }

  static SequenceLayout finish(Fields f, std::vector<index_t> lengths) {
    f.positions.assign(lengths.size(), 0);
    f.numbers.resize(lengths.size());
    std::iota(f.numbers.begin(), f.numbers.end(), std::uint32_t{0});
    for (const index_t length : lengths) f.tokens += length;
    f.lengths = std::move(lengths);
    return SequenceLayout(std::move(f));
  }

  static void check_batch(index_t batch) {
    if (batch <= max_batch) return;
    throw ShapeError("layout", {"batch is ", batch, ", must be at most ", max_batch, " sequences"});
  }

  static void check_rows(const char* limit, index_t batch, index_t stride) {
    check_batch(batch);
    if (stride > Shape::max_numel / std::max<index_t>(1, batch)) {
      throw ShapeError("layout", {"a batch of ", batch, " with a ", limit, " of ", stride,
                                  " has more rows than any memory holds"});
    }
  }

  [[noreturn]] static void refuse_length(std::size_t b, index_t length, const std::string& rule) {
    throw ValueError("layout", {"length of sequence ", b, " is ", length, ", ", rule});
  }

  void check_count(const char* what, std::size_t count) const {
    if (static_cast<index_t>(count) != batch()) {
      throw ValueError(
          "layout", {count, " ", what, " given, there must be one for each of the ", batch(), " sequences"});
    }
  }

  std::size_t checked(index_t b) const {
    if (b < 0 || b >= batch()) {
      throw IndexError("layout", {"sequence ", b, " does not exist in a batch of ", batch()});
    }
    return static_cast<std::size_t>(b);
  }

  const Fields& fields() const noexcept { return data_->fields; }

  std::shared_ptr<Data> data_;
};

}  // namespace eigenformer
