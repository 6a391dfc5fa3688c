#pragma once

#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <utility>
#include <vector>

#include "eigenformer/core/tensor/tensor.hpp"

namespace eigenformer {

namespace detail {

template <class T>
struct WeightAdapter;

inline std::uint64_t next_parameter_id() {
  static std::atomic<std::uint64_t> id{0};
  return ++id;
}

template <class T>
struct ParameterState {
  std::uint64_t id = next_parameter_id();
  std::string name;
  std::vector<std::string> aliases{};  // further names of a tied parameter in its model
  Tensor<T> value;
  bool frozen = false;
  bool tied = false;    // stands in several places of a model
  bool copied = false;  // for messages: a copy has another id than what it was copied from
  std::shared_ptr<WeightAdapter<T>> adapter{};  // null: none
};

}  // namespace detail

/// The shared state of a parameter, which gradients, optimizers and packed weights hold; it stays valid when
/// the module is moved or destroyed.
template <class T>
using ParameterHandle = std::shared_ptr<detail::ParameterState<T>>;

/// A trained tensor, with a process-unique id and its dotted name in the model.
///
/// A default-constructed or moved-from parameter is absent, as the bias of a Linear without one. Members
/// other than defined() throw ValueError when it is absent.
template <class T>
class Parameter {
 public:
  /// An absent parameter.
  Parameter() noexcept = default;
  /// A parameter with a new id and no name; it shares the storage of `value`.
  explicit Parameter(Tensor<T> value) : state_(std::make_shared<detail::ParameterState<T>>()) {
    state_->value = std::move(value);
  }
  /// An independent parameter with a new id and copies of name, values, frozen state and adapter; absent if
  /// `other` is. Throws ValueError if `other` is tied() to another place.
  Parameter(const Parameter& other) {
    if (other.state_ == nullptr) return;
    if (other.state_->tied) other.refuse_copy();
    state_ = std::make_shared<detail::ParameterState<T>>();
    state_->copied = true;
    state_->name = other.state_->name;
    state_->value = other.state_->value.clone();
    state_->frozen = other.state_->frozen;
    copy_adapter(other);
  }
  /// Takes id, values and all else; the other parameter is absent afterwards.
  Parameter(Parameter&&) noexcept = default;
  /// Copies values, frozen state and adapter and keeps its id. When the shapes differ or one is absent it
  /// becomes a copy of `other`, still with its id if both are present; throws ValueError if one is tied().
  Parameter& operator=(const Parameter& other) {
    if (this == &other || (state_ != nullptr && state_ == other.state_)) return *this;  // one, or tied
    if (state_ == nullptr || other.state_ == nullptr ||
        state_->value.shape() != other.state_->value.shape()) {
      if (state_ != nullptr && state_->tied) refuse_copy();
      Parameter copy(other);
      if (state_ != nullptr && copy.state_ != nullptr) copy.state_->id = state_->id;
      state_ = std::move(copy.state_);
    } else {
      state_->value.copy_from(other.state_->value);
      state_->frozen = other.state_->frozen;
      copy_adapter(other);
    }
    return *this;
  }
  /// Takes id, values and all else; the other parameter is absent afterwards.
  Parameter& operator=(Parameter&&) noexcept = default;

  /// Whether it is present.
  bool defined() const noexcept { return state_ != nullptr; }
  /// A number that no other parameter of this process has; moves keep it.
  std::uint64_t id() const { return state().id; }
  /// The dotted name in its model, such as "encoder.layers.0.linear1.weight"; empty until it is set.
  const std::string& name() const { return state().name; }
  /// Sets the name; models do so when they are constructed.
  void set_name(std::string name) { state().name = std::move(name); }
  /// The shape of value().
  const Shape& shape() const { return state().value.shape(); }
  /// The values. After writing to them call Tensor::mark_changed().
  Tensor<T>& value() { return state().value; }
  /// The values, for reading.
  const Tensor<T>& value() const { return state().value; }
  /// The shared state, as Gradients and optimizers take it.
  const ParameterHandle<T>& handle() const {
    (void)state();
    return state_;
  }

  /// This parameter for another place of its model: both share id, values and all else, so it has one
  /// gradient, is saved once and counts once. Copying it throws ValueError from then on, because the copies
  /// would not be tied. tie() does this for all parameters of a module.
  Parameter tied() {
    state().tied = true;
    Parameter place;
    place.state_ = state_;
    return place;
  }

  /// Whether it is a constant: no gradient is computed, and optimizers do not change it.
  bool frozen() const { return state().frozen; }
  /// Freezes or unfreezes it; forward passes that are already recorded keep the old state.
  void set_frozen(bool frozen) { state().frozen = frozen; }

  /// The adapter of products with this weight, unless the Context has others (Context::with_adapters); null
  /// without one. A copy of the parameter has a copy of the adapter.
  const std::shared_ptr<detail::WeightAdapter<T>>& adapter() const { return state().adapter; }
  /// Attaches an adapter; null removes it.
  void set_adapter(std::shared_ptr<detail::WeightAdapter<T>> adapter) {
    state().adapter = std::move(adapter);
  }

 private:
  [[noreturn]] void refuse_copy() const {
    throw ValueError("parameter",
                     {"'", state_->name,
                      "' is tied: it stands in several places of its model, and copies would not; make "
                      "another model in the same way and copy the values by load_state_dict(other, "
                      "state_dict(model))"});
  }

  void copy_adapter(const Parameter& other) {
    const auto& theirs = other.state_->adapter;
    state_->adapter = theirs == nullptr ? nullptr : std::make_shared<detail::WeightAdapter<T>>(*theirs);
  }

  detail::ParameterState<T>& state() const {
    if (state_ == nullptr)
      throw ValueError("parameter",
                       "this parameter does not exist: it is optional and absent, or was moved from");
    return *state_;
  }

  ParameterHandle<T> state_;
};

static_assert(std::is_nothrow_move_constructible_v<Parameter<float>>);
static_assert(std::is_nothrow_move_assignable_v<Parameter<float>>);

namespace detail {

/// A low-rank term for some rows of a weight: y[rows] += scale() B A dropout(x). LoRA: Hu et al. 2021.
template <class T>
struct LowRankPart {
  std::string module{};          ///< the name of the rows, such as "encoder.layers.0.self_attn.q_proj"
  index_t first_row = 0;         ///< the first of the weight's rows it applies to
  index_t rows = 0;              ///< the number of rows
  Parameter<T> a{};              ///< (r, in)
  Parameter<T> b{};              ///< (rows, r)
  double alpha = 0;              ///< the numerator of scale()
  bool rank_stabilized = false;  ///< whether scale() divides by the square root of the rank
  double dropout = 0;            ///< rate of dropout of x in training

  /// r, the number of rows of `a`. Throws ValueError when `a` is absent.
  index_t rank() const { return a.shape()[0]; }
  /// alpha / r, or alpha / sqrt(r) if rank_stabilized (rsLoRA: Kalajdzievski 2023).
  double scale() const {
    const auto r = static_cast<double>(rank());
    return alpha / (rank_stabilized ? std::sqrt(r) : r);
  }
};

/// The terms that an adapter adds to products with one weight.
template <class T>
struct WeightAdapter {
  std::vector<LowRankPart<T>> parts{};  ///< added in this order
};

}  // namespace detail

/// The adapters of a model's weights, stored outside the model: several sets can share one model, each in its
/// own Context (Context::with_adapters).
template <class T>
class AdapterSet {
 public:
  /// Sets the adapter of `weight`, in place of an earlier one.
  void add(const Parameter<T>& weight, std::shared_ptr<detail::WeightAdapter<T>> adapter) {
    adapters_[weight.id()] = std::move(adapter);
  }
  /// The adapter of `weight`; null without one.
  const std::shared_ptr<detail::WeightAdapter<T>>& find(const Parameter<T>& weight) const {
    static const std::shared_ptr<detail::WeightAdapter<T>> none;
    const auto at = adapters_.find(weight.id());
    return at == adapters_.end() ? none : at->second;
  }
  /// The number of weights with an adapter.
  std::size_t size() const noexcept { return adapters_.size(); }

 private:
  std::unordered_map<std::uint64_t, std::shared_ptr<detail::WeightAdapter<T>>> adapters_;
};

/// A tensor of a module that is never trained, such as a table of positions.
template <class T>
struct Buffer {
  Tensor<T> value;          ///< the values
  bool persistent = false;  ///< whether it is saved with the parameters
};

}  // namespace eigenformer
