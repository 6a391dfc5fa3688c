#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/autograd/ops/shape/shape.hpp"
#include "eigenformer/kernels/reduction/top_k.hpp"
#include "eigenformer/search/decoding/attention_maps.hpp"
#include "eigenformer/search/decoding/next_tokens.hpp"

namespace eigenformer {

namespace detail {

// Copies the options of a model that has any.
template <class M>
struct ModelOptions {
  explicit ModelOptions(const M&) {}
};
template <class M>
requires requires(const M& model) { model.options; }
struct ModelOptions<M> {
  explicit ModelOptions(const M& model) : options(model.options) {}
  std::remove_cvref_t<decltype(M::options)> options;
};

}  // namespace detail

/// Several models of one vocabulary as one model: the probability of a token is the mean of the models'
/// probabilities, and its logit the logarithm of that mean. Use it with generate() and score_targets() like
/// a single model. An ensemble of one returns that model's own logits.
///
///     const ef::Ensemble<ef::Seq2SeqTransformer<float>> both({{a, ctx_a}, {b, ctx_b}});
///     auto found = ef::generate(both, ef::Context<float>::inference(), sources);
///
/// The models must outlive it. Each runs in its own context, for example with its own packed weights; the
/// context passed to a call is ignored. `options` is a copy of the first model's options, if it has any.
/// Thread-safe if the models are.
template <class M>
class Ensemble : public detail::ModelOptions<M> {
 public:
  using T = detail::ValueOf<M>;     ///< the models' scalar type
  using value_type = T;             ///< the models' scalar type
  using Input = typename M::Input;  ///< what one text is generated from

  /// A model of the ensemble.
  struct Member {
    const M& model;                            ///< must outlive the ensemble
    Context<T> ctx = Context<T>::inference();  ///< the context that the model runs in
  };

  /// Throws ValueError without a model and for vocabularies of different sizes.
  explicit Ensemble(std::vector<Member> members)
      : detail::ModelOptions<M>(first(members)), members_(std::move(members)) {
    for (std::size_t i = 1; i < members_.size(); ++i) {
      const auto size = static_cast<index_t>(members_[i].model.vocabulary_size());
      if (size == vocabulary_size()) continue;
      throw ValueError("ensemble", {"model ", i, " has a vocabulary of ", size, " ids, must have ",
                                    vocabulary_size(), ", as model 0 has"});
    }
    widths_ = std::make_shared<Widths>(members_.size());
  }

  /// The decoding states of all members, which advance together; see search/model.hpp.
  class State {
   public:
    /// The number of sequences.
    index_t sequences() const { return static_cast<index_t>(states_.front().sequences()); }
    /// Makes sequence i a continuation of the former sequence parents[i].
    void reorder(std::span<const std::int32_t> parents) {
      for (auto& state : states_) state.reorder(parents);
    }
    /// Appends a token to each sequence, ids (sequences); returns the members' rows side by side, (sequences,
    /// sum of the members' widths).
    Var<T> step(const Tensor<std::int32_t>& ids) {
      return join([&](auto& state) { return state.step(ids); });
    }
    /// Appends counts[i] tokens to sequence i, ids (rows); prefix as in AttentionMask::prefix, empty: none.
    Var<T> step(const Tensor<std::int32_t>& ids, std::span<const index_t> counts,
                const std::vector<index_t>& prefix) {
      return join([&](auto& state) { return state.step(ids, counts, prefix); });
    }

   private:
    friend class Ensemble;

    // Steps all members and concatenates their rows.
    template <class F>
    Var<T> join(F&& step) {
      std::vector<Var<T>> parts;
      for (std::size_t m = 0; m < states_.size(); ++m) {
        parts.push_back(step(states_[m]));
        const Shape& shape = parts[m].shape();
        if (shape.rank() != 2 || shape[0] != parts[0].dim(0)) {
          const std::string rows = m == 0 ? "rows" : std::to_string(parts[0].dim(0));
          throw ShapeError("ensemble",
                           {"the step of model ", m, " returned rows of shape ", shape, ", must be (", rows,
                            ", d_model), the same rows for all models"},
                           {shape});
        }
        (*widths_)[m].store(shape[1], std::memory_order_relaxed);
      }
      return parts.size() == 1 ? parts[0] : concat(parts, 1);
    }

    std::vector<detail::StateOf<M>> states_;
    std::shared_ptr<std::vector<std::atomic<index_t>>> widths_;
  };

  /// The number of token ids, the same for all members.
  index_t vocabulary_size() const { return static_cast<index_t>(first(members_).vocabulary_size()); }

  /// Begins a sequence per input with all members, in their own contexts.
  State begin(const Context<T>&, std::span<const Input> inputs) const {
    (void)first(members_);
    State state;
    state.widths_ = widths_;
    for (const Member& member : members_) state.states_.push_back(member.model.begin(member.ctx, inputs));
    return state;
  }

  /// Returns (rows, V): log-probabilities, or the logits of a single model. rows: what State::step()
  /// returned. Throws ShapeError for other rows, and for a model whose logits are not (rows, V).
  Var<T> logits(const Context<T>&, const Var<T>& rows) const {
    return mean(rows, vocabulary_size(), [&](std::size_t m, const Var<T>& part) {
      return Var<T>(members_[m].model.logits(members_[m].ctx, part));
    });
  }

  /// The same for some ids: a function from the rows to logits (rows, ids), for which each member's
  /// probabilities are normalised over the ids. Used for a shortlist. ids: ascending, within the vocabulary.
  detail::SelectedLogits<T> selected_logits(
      const std::vector<std::int32_t>& ids) const requires detail::CanSelectLogits<M> {
    std::vector<detail::SelectedLogits<T>> selected;
    for (const Member& member : members_)
      selected.push_back(detail::selected_logits(member.model, member.ctx, ids));
    return [this, selected, columns = static_cast<index_t>(ids.size())](const Var<T>& rows) {
      return mean(rows, columns, [&](std::size_t m, const Var<T>& part) { return Var<T>(selected[m](part)); })
          .value();
    };
  }

  /// The first member's prompt, for decoder-only models.
  decltype(auto) prompt(const Input& input) const requires detail::HasPrompt<M> {
    return first(members_).prompt(input);
  }
  /// The first member's input_length().
  index_t input_length(const Input& input) const requires detail::HasInputLength<M> {
    return static_cast<index_t>(first(members_).input_length(input));
  }

  /// The models with their contexts, valid as long as the ensemble.
  std::span<const Member> members() const noexcept { return members_; }

 private:
  using Widths = std::vector<std::atomic<index_t>>;

  // The mean of the logits (rows, columns) that logits_of(member's index, that member's rows) returns.
  template <class F>
  Var<T> mean(const Var<T>& rows, index_t columns, F&& logits_of) const {
    if (members_.size() == 1) return logits_of(std::size_t{0}, rows);
    index_t at = 0, width = 0;
    for (const auto& d : *widths_) width += d.load(std::memory_order_relaxed);
    if (rows.rank() != 2 || rows.dim(1) != width) {
      throw ShapeError("ensemble",
                       {"rows of shape ", rows.shape(), " must be (rows, ", width,
                        "), as the state's step() returned them"},
                       {rows.shape()});
    }
    const index_t count = rows.dim(0);
    Tensor<T> mixed;
    for (std::size_t m = 0; m < members_.size(); ++m) {
      const index_t begin = at;
      at += (*widths_)[m].load(std::memory_order_relaxed);
      const Var<T> made = logits_of(m, slice(rows, 1, begin, at));
      detail::require_logits("ensemble", made.shape(), count, columns);
      Tensor<T> p = made.value().clone();
      std::vector<T> sums(static_cast<std::size_t>(count));
      detail::kernels::log_sum_exp<T>(p.data(), columns, count, columns, sums.data());
      for (index_t i = 0; i < p.numel(); ++i) p.data()[i] -= sums[static_cast<std::size_t>(i / columns)];
      if (m == 0) {
        mixed = std::move(p);
        continue;
      }
      for (index_t i = 0; i < p.numel(); ++i) {
        T& x = mixed.data()[i];
        const T y = p.data()[i], high = std::max(x, y), low = std::min(x, y);
        if (std::isnan(x + y)) {
          x = std::numeric_limits<T>::quiet_NaN();
        } else {  // a probability of 0 adds nothing
          x = low == -std::numeric_limits<T>::infinity() ? high : high + std::log1p(std::exp(low - high));
        }
      }
    }
    const T models = std::log(static_cast<T>(members_.size()));
    for (T& x : mixed.span()) x -= models;
    return Var<T>(std::move(mixed));
  }

  static const M& first(const std::vector<Member>& members) {
    if (members.empty())
      throw ValueError("ensemble",
                       "there is no model, must be at least one; the ensemble may have been moved from");
    return members.front().model;
  }

  std::vector<Member> members_;
  std::shared_ptr<Widths> widths_;  // widths of the members' rows, set by steps
};

/// The mean of the members' attention weights. Throws ValueError unless all members have the same numbers of
/// layers and heads.
template <class M>
requires detail::HasAttentionMaps<M>
[[nodiscard]] AttentionMaps attention_maps(const Ensemble<M>& model, const Context<typename M::value_type>&,
                                           const typename M::Input& source,
                                           const std::vector<std::int32_t>& target, std::int32_t begin_id,
                                           index_t prefix = 0) {
  AttentionMaps mean;
  const auto count = static_cast<float>(model.members().size());
  for (const auto& member : model.members()) {
    AttentionMaps maps = attention_maps(member.model, member.ctx, source, target, begin_id, prefix);
    if (model.members().size() == 1) return maps;
    const auto add = [&](std::vector<Tensor<float>>& sum, std::vector<Tensor<float>>& layers) {
      if (sum.empty()) {
        for (Tensor<float>& layer : layers) sum.push_back(Tensor<float>::zeros(layer.shape()));
      }
      bool same = sum.size() == layers.size();
      for (std::size_t i = 0; same && i < layers.size(); ++i) same = sum[i].shape() == layers[i].shape();
      if (!same) {
        throw ValueError("attention_maps",
                         "the models of the ensemble differ in layers or heads, so their attention has no "
                         "mean; expected equal numbers");
      }
      for (std::size_t i = 0; i < layers.size(); ++i) {
        for (index_t k = 0; k < layers[i].numel(); ++k) sum[i].data()[k] += layers[i].data()[k] / count;
      }
    };
    add(mean.source, maps.source);
    add(mean.target, maps.target);
    add(mean.memory, maps.memory);
  }
  return mean;
}

/// The cross-attention weights of the first member.
template <class M>
requires detail::HasCrossAttention<M>
[[nodiscard]] std::vector<Tensor<float>> cross_attention_weights(
    const Ensemble<M>& model, const Context<typename M::value_type>&,
    std::span<const typename M::Input> sources, std::span<const std::vector<std::int32_t>> targets,
    std::int32_t begin_id, index_t prefix, index_t layer) {
  const auto& first = model.members().front();
  return cross_attention_weights(first.model, first.ctx, sources, targets, begin_id, prefix, layer);
}

}  // namespace eigenformer
