#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "eigenformer/kernels/reduction/top_k.hpp"
#include "eigenformer/search/beams/rules.hpp"
#include "eigenformer/search/processors/processor_list.hpp"

namespace eigenformer::detail {

/// The best continuations of each row of a step's logits, after the processors.
template <class T>
class StepScores {
 public:
  StepScores(const ProcessorList& processors, ProcessorInput input)
      : processors_(processors), input_(input) {}

  /// Sets the ids of the logits' columns; empty: all ids of the vocabulary. ids must outlive their use.
  void use(std::span<const std::int32_t> ids, index_t vocabulary) {
    columns_ = ids;
    all_.assign(ids.empty() ? 0 : static_cast<std::size_t>(vocabulary), -std::numeric_limits<T>::infinity());
  }

  /// Finds the k best tokens of each row, the best first, for candidate(). logits: (rows, V), or (rows, ids)
  /// after use(); they are overwritten. steps: the text of each row. Throws ValueError for logits that are
  /// NaN or +infinity.
  void find(Tensor<T>& logits, std::span<const LogitsStep> steps, index_t k) {
    const index_t rows = logits.dim(0), vocabulary = logits.dim(1);
    k_ = static_cast<std::size_t>(std::min(k, vocabulary));
    sums_.resize(static_cast<std::size_t>(rows));
    values_.resize(sums_.size() * k_);
    ids_.resize(values_.size());
    // Forbidding a token changes neither the order of the others nor, without renormalisation, their scores:
    // the best are found together with the sums, and searched again only if one of them is forbidden.
    const bool at_once = !processors_.changes_values() && input_ != ProcessorInput::renormalised_logits;
    if (at_once) {
      find_best(logits.data(), rows, vocabulary, 0, sums_.data());
    } else {
      kernels::log_sum_exp<T>(logits.data(), vocabulary, rows, vocabulary, sums_.data());
    }
    for (std::size_t r = 0; r < steps.size(); ++r) {
      const std::span<T> row(logits.data() + static_cast<index_t>(r) * vocabulary,
                             static_cast<std::size_t>(vocabulary));
      // The row has NaN or +infinity, or only -infinity, which is allowed.
      if (std::isnan(sums_[r])) require_numbers<T>("search", row, steps[r].input, steps[r].step, false);
      // If processors only forbid tokens, the sum need not be subtracted from the row.
      if (input_ == ProcessorInput::log_probabilities && processors_.changes_values()) {
        if (std::isnan(sums_[r])) sums_[r] = 0;
        for (T& score : row) score -= sums_[r];
        sums_[r] = 0;
      }
      process(steps[r], row);
      if (processors_.changes_values())
        require_numbers<T>("search", row, steps[r].input, steps[r].step, true);
      if (at_once && !still_best(r, row)) find_best(row.data(), 1, vocabulary, r, nullptr);
    }
    if (input_ == ProcessorInput::renormalised_logits)
      kernels::log_sum_exp<T>(logits.data(), vocabulary, rows, vocabulary, sums_.data());
    if (!at_once) find_best(logits.data(), rows, vocabulary, 0, nullptr);
    for (std::size_t i = 0; i < values_.size(); ++i) values_[i] -= sums_[i / k_];
    if (columns_.empty()) return;
    for (std::int32_t& id : ids_) id = columns_[static_cast<std::size_t>(id)];
  }

  struct Candidate {
    double log_probability;
    std::int32_t id;
  };
  std::size_t candidates() const noexcept { return k_; }
  /// The i-th best token of a row; log_probability is -infinity or NaN if fewer are allowed.
  Candidate candidate(std::size_t row, std::size_t i) const {
    return {static_cast<double>(values_[row * k_ + i]), ids_[row * k_ + i]};
  }

  /// The log-probability of any id, from the logits that find() has processed; -infinity if the id has no
  /// column.
  double log_probability(const Tensor<T>& logits, std::size_t row, std::int32_t id) const {
    auto column = static_cast<std::size_t>(id);
    if (!columns_.empty()) {
      const auto at = std::lower_bound(columns_.begin(), columns_.end(), id);
      if (at == columns_.end() || *at != id) return -std::numeric_limits<double>::infinity();
      column = static_cast<std::size_t>(at - columns_.begin());
    }
    const T* const scores = logits.data() + static_cast<index_t>(row) * logits.dim(1);
    return static_cast<double>(scores[column] - sums_[row]);
  }

 private:
  // Finds the best of `rows` rows, stores them from row `first` of the results on, and computes the sums
  // unless `sums` is null.
  void find_best(const T* logits, index_t rows, index_t vocabulary, std::size_t first, T* sums) {
    T* const values = values_.data() + first * k_;
    std::int32_t* const ids = ids_.data() + first * k_;
    const auto k = static_cast<index_t>(k_);
    if (sums != nullptr) {
      kernels::top_k<T>(logits, vocabulary, rows, vocabulary, k, values, ids, sums);
    } else {
      kernels::top_k<T>(logits, vocabulary, rows, vocabulary, k, values, ids);
    }
  }

  // Whether the best tokens of a row still have their scores.
  bool still_best(std::size_t r, std::span<const T> row) const {
    for (std::size_t i = r * k_; i < (r + 1) * k_; ++i) {
      if (!(row[static_cast<std::size_t>(ids_[i])] == values_[i])) return false;
    }
    return true;
  }

  // Processors get a row of the whole vocabulary, with -infinity for ids without a column.
  void process(const LogitsStep& step, std::span<T> row) {
    if (columns_.empty()) return processors_(step, row);
    if (processors_.changes_values())
      std::fill(all_.begin(), all_.end(), -std::numeric_limits<T>::infinity());
    for (std::size_t i = 0; i < row.size(); ++i) all_[static_cast<std::size_t>(columns_[i])] = row[i];
    processors_(step, std::span<T>(all_));
    for (std::size_t i = 0; i < row.size(); ++i) row[i] = all_[static_cast<std::size_t>(columns_[i])];
  }

  const ProcessorList& processors_;
  ProcessorInput input_;
  std::vector<T> sums_, values_;
  std::vector<std::int32_t> ids_;
  std::span<const std::int32_t> columns_;
  std::vector<T> all_;  // with columns_: a row of the vocabulary
  std::size_t k_ = 0;
};

}  // namespace eigenformer::detail
