#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "eigenformer/core/base/random.hpp"
#include "eigenformer/search/model.hpp"

namespace eigenformer::testing {

/// The least that a generative model is: logits from a table by the last token (and the number of tokens), no
/// layer, no parameter. An input is a shift of the table's rows.
template <class T = double>
struct TableModel {
  using value_type = T;
  using Input = std::vector<std::int32_t>;

  struct State {
    const TableModel* model;
    std::vector<std::int32_t> shift;
    std::vector<index_t> length;

    index_t sequences() const { return static_cast<index_t>(shift.size()); }
    void reorder(std::span<const std::int32_t> parents) {
      State next{model, {}, {}};
      for (const std::int32_t p : parents) {
        next.shift.push_back(shift[static_cast<std::size_t>(p)]);
        next.length.push_back(length[static_cast<std::size_t>(p)]);
      }
      *this = next;
    }
    // Rows of one number: which row of the table gives the logits.
    Var<T> step(const Tensor<std::int32_t>& ids, std::span<const index_t> counts,
                const std::vector<index_t>&) {
      Tensor<T> rows(Shape{ids.numel(), 1});
      index_t r = 0;
      for (std::size_t i = 0; i < counts.size(); ++i) {
        for (index_t k = 0; k < counts[i]; ++k, ++r)
          rows.data()[r] = static_cast<T>(model->row_of(ids.data()[r] + shift[i] + 5 * length[i]++));
      }
      return Var<T>(std::move(rows));
    }
    Var<T> step(const Tensor<std::int32_t>& ids) {
      return step(ids, std::vector<index_t>(shift.size(), 1), {});
    }
  };

  index_t vocabulary = 0, table_rows = 0;
  std::vector<T> table;  // (rows, vocabulary)

  TableModel(index_t size, std::uint64_t seed, double spread = 1) : vocabulary(size), table_rows(11 * size) {
    RandomGenerator rng(seed);
    table.resize(static_cast<std::size_t>(table_rows * size));
    rng.fill_normal(table.data(), table_rows * size, 0, spread);
  }

  index_t row_of(index_t i) const { return i % table_rows; }
  index_t vocabulary_size() const { return vocabulary; }
  State begin(const Context<T>&, std::span<const Input> inputs) const {
    State state{this, {}, std::vector<index_t>(inputs.size(), 0)};
    for (const Input& input : inputs) {
      std::int32_t sum = 0;
      for (const std::int32_t id : input) sum += 3 * id;
      state.shift.push_back(sum);
    }
    return state;
  }
  Var<T> logits(const Context<T>&, const Var<T>& decoded) const {
    Tensor<T> y(Shape{decoded.dim(0), vocabulary});
    for (index_t i = 0; i < decoded.dim(0); ++i) {
      const T* from = table.data() + static_cast<index_t>(decoded.value().data()[i]) * vocabulary;
      std::copy_n(from, vocabulary, y.data() + i * vocabulary);
    }
    return Var<T>(std::move(y));
  }

  /// Logits of the next token after begin and `ids`, of an input.
  std::vector<double> next(const Input& input, std::vector<std::int32_t> ids) const {
    State state = begin(Context<T>::inference(), std::span<const Input>(&input, 1));
    const std::vector<index_t> counts{static_cast<index_t>(ids.size())};
    const Var<T> rows_of =
        state.step(Tensor<std::int32_t>::from(Shape{static_cast<index_t>(ids.size())}, ids), counts, {});
    const T* from = table.data() + static_cast<index_t>(rows_of.value().data()[ids.size() - 1]) * vocabulary;
    return {from, from + vocabulary};
  }
};

}  // namespace eigenformer::testing
