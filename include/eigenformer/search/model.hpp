#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "eigenformer/autograd/tape/context.hpp"
#include "eigenformer/core/base/config.hpp"

/// What generate() and score_targets() need of a model.
///
///     struct MyModel {
///       using value_type = float;
///       using Input = std::vector<std::int32_t>;  // what one text is generated from
///       index_t vocabulary_size() const;
///       State begin(const Context<float>&, std::span<const Input>) const;        // one sequence per input
///       Var<float> logits(const Context<float>&, const Var<float>& rows) const;  // (rows, D) -> (rows, V)
///     };
///
/// Optional members:
///
///     const std::vector<std::int32_t>& prompt(const Input&) const;  // the first tokens (decoder-only)
///     index_t input_length(const Input&) const;  // for batches of similar length; default: input.size()
///
/// The state holds what the model caches for each sequence:
///
///     Var<float> step(ids);                  // ids (sequences): one token each -> (sequences, D)
///     Var<float> step(ids, counts, prefix);  // ids (rows): counts[i] tokens of sequence i -> (rows, D);
///                                            // prefix as in AttentionMask::prefix, empty: none
///     void reorder(std::span<const std::int32_t> parents);  // sequence i continues the former parents[i]
///     index_t sequences() const;
///
/// SearchOptions::attention needs a function attention_maps(model, ctx, input, target, begin_id, prefix)
/// in the model's namespace, TextTranslatorOptions::alignment a function cross_attention_weights(model, ctx,
/// inputs, targets, begin_id, prefix, layer).
namespace eigenformer {

namespace detail {

/// M::value_type is float or double.
template <class M>
concept HasValueType =
    std::same_as<typename M::value_type, float> || std::same_as<typename M::value_type, double>;

/// M::Input is the type of what one text is generated from.
template <class M>
concept HasInput = requires {
  typename M::Input;
};

/// model.vocabulary_size() is the number of token ids.
template <class M>
concept HasVocabularySize = requires(const M& model) {
  { model.vocabulary_size() } -> std::convertible_to<index_t>;
};

/// model.begin(ctx, inputs) returns the state of growing sequences.
template <class M>
concept HasBegin = HasValueType<M> && HasInput<M> &&
    requires(const M& model, const Context<typename M::value_type>& ctx,
             std::span<const typename M::Input> inputs) {
  model.begin(ctx, inputs);
};

/// The type that begin() returns.
template <class M>
using StateOf =
    decltype(std::declval<const M&>().begin(std::declval<const Context<typename M::value_type>&>(),
                                            std::declval<std::span<const typename M::Input>>()));

/// state.step(ids) appends one token to each sequence.
template <class S, class T>
concept StepsByOne = requires(S& state, const Tensor<std::int32_t>& ids) {
  { state.step(ids) } -> std::convertible_to<Var<T>>;
};

/// state.step(ids, counts, prefix) appends counts[i] tokens to sequence i.
template <class S, class T>
concept StepsByMany = requires(S& state, const Tensor<std::int32_t>& ids, std::span<const index_t> counts,
                               const std::vector<index_t>& prefix) {
  { state.step(ids, counts, prefix) } -> std::convertible_to<Var<T>>;
};

/// state.reorder(parents) and state.sequences().
template <class S>
concept Reorders = requires(S& state, std::span<const std::int32_t> parents) {
  state.reorder(parents);
  { state.sequences() } -> std::convertible_to<index_t>;
};

/// model.logits(ctx, rows) computes logits (rows, V) from the decoder's rows (rows, D).
template <class M>
concept HasLogits = HasValueType<M> && requires(const M& model, const Context<typename M::value_type>& ctx,
                                                const Var<typename M::value_type>& rows) {
  { model.logits(ctx, rows) } -> std::convertible_to<Var<typename M::value_type>>;
};

/// model.prompt(input) returns the first tokens of a text, for decoder-only models.
template <class M>
concept HasPrompt = HasInput<M> && requires(const M& model, const typename M::Input& input) {
  { model.prompt(input) } -> std::convertible_to<std::vector<std::int32_t>>;
};

/// model.input_length(input) returns the length by which inputs are batched.
template <class M>
concept HasInputLength = HasInput<M> && requires(const M& model, const typename M::Input& input) {
  { model.input_length(input) } -> std::convertible_to<index_t>;
};

/// Ids as a tensor (ids).
inline Tensor<std::int32_t> id_row(const std::vector<std::int32_t>& ids) {
  return Tensor<std::int32_t>::from(Shape{static_cast<index_t>(ids.size())}, ids);
}

}  // namespace detail

/// A model that can generate texts; the head of search/model.hpp describes its members.
template <class M>
// Version 14 of clang-format takes the < for an operator.
// clang-format off
concept GenerativeModel = detail::HasValueType<M> && detail::HasInput<M> && detail::HasVocabularySize<M> &&
                          detail::HasBegin<M> && detail::HasLogits<M> &&
                          detail::StepsByOne<detail::StateOf<M>, typename M::value_type> &&
                          detail::StepsByMany<detail::StateOf<M>, typename M::value_type> &&
                          detail::Reorders<detail::StateOf<M>>;
// clang-format on

namespace detail {

// Explains what a model lacks by static assertions.
template <class M>
struct Generative {
  static_assert(detail::HasValueType<M>, "the model needs `using value_type = float;` (or double)");
  static_assert(
      detail::HasInput<M>,
      "the model needs `using Input = ...;`, the type of what one text is generated from, for instance "
      "std::vector<std::int32_t>");
  static_assert(detail::HasVocabularySize<M>, "the model needs `index_t vocabulary_size() const`");
  static_assert(
      !detail::HasValueType<M> || !detail::HasInput<M> || detail::HasBegin<M>,
      "the model needs `begin(const Context<T>& ctx, std::span<const Input> inputs) const`, which returns a "
      "state with one sequence for each input (see DecoderState)");
  static_assert(
      !detail::HasValueType<M> || detail::HasLogits<M>,
      "the model needs `Var<T> logits(const Context<T>& ctx, const Var<T>& rows) const`, which makes logits "
      "(rows, vocabulary) of what the state's step returns");

  static auto value_type() {
    if constexpr (detail::HasValueType<M>)
      return typename M::value_type{};
    else
      return float{};
  }
  static constexpr bool check_state() {
    if constexpr (detail::HasBegin<M>) {
      using S = detail::StateOf<M>;
      using T = typename M::value_type;
      static_assert(
          detail::StepsByOne<S, T>,
          "the state that begin() returns needs `Var<T> step(const Tensor<std::int32_t>& ids)`: one more "
          "token for each sequence");
      static_assert(
          detail::StepsByMany<S, T>,
          "the state that begin() returns needs `Var<T> step(const Tensor<std::int32_t>& ids, "
          "std::span<const index_t> counts, const std::vector<index_t>& prefix)`: counts[i] tokens for "
          "sequence i");
      static_assert(
          detail::Reorders<S>,
          "the state that begin() returns needs `reorder(std::span<const std::int32_t> parents)` and "
          "`index_t sequences() const`");
    }
    return true;
  }
  static_assert(check_state());
};

template <class M>
struct InputOf {
  using type = int;
};
template <detail::HasInput M>
struct InputOf<M> {
  using type = typename M::Input;
};

// The scalar type of a model; naming it checks the model.
template <class M>
using ValueOf = decltype(Generative<M>::value_type());

}  // namespace detail

}  // namespace eigenformer
