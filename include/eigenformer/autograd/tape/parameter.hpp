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

template <class T>
struct WeightAdapter;

namespace detail {

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
  std::shared_ptr<WeightAdapter<T>> adapter{};  // what is added to products with the weight; null: nothing
};

}  // namespace detail

/// A parameter as gradients, optimizers and packed weights hold it: shared, never an address inside a module.
template <class T>
using ParameterHandle = std::shared_ptr<detail::ParameterState<T>>;

/// A tensor that is learned: a handle with a process-unique id and the dotted name it has in its model.
///
/// A move keeps the id; copy construction makes an independent parameter with a new id; copy assignment keeps
/// the id and copies the values. A default-constructed parameter is absent (a Linear without bias).
template <class T>
class Parameter {
 public:
  Parameter() noexcept = default;
  explicit Parameter(Tensor<T> value) : state_(std::make_shared<detail::ParameterState<T>>()) {
    state_->value = std::move(value);
  }
  Parameter(const Parameter& other) {
    if (other.state_ == nullptr) return;
    state_ = std::make_shared<detail::ParameterState<T>>();
    state_->name = other.state_->name;
    state_->value = other.state_->value.clone();
    state_->frozen = other.state_->frozen;
    copy_adapter(other);
  }
  Parameter(Parameter&&) noexcept = default;
  Parameter& operator=(const Parameter& other) {
    if (this == &other) return *this;
    if (state_ == nullptr || other.state_ == nullptr ||
        state_->value.shape() != other.state_->value.shape()) {
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
  Parameter& operator=(Parameter&&) noexcept = default;

  bool defined() const noexcept { return state_ != nullptr; }
  std::uint64_t id() const { return state().id; }
  const std::string& name() const { return state().name; }
  void set_name(std::string name) { state().name = std::move(name); }
  const Shape& shape() const { return state().value.shape(); }
  Tensor<T>& value() { return state().value; }
  const Tensor<T>& value() const { return state().value; }
  const ParameterHandle<T>& handle() const {
    (void)state();
    return state_;
  }

  /// A frozen parameter gets no gradient and is not stepped.
  bool frozen() const { return state().frozen; }
  void set_frozen(bool frozen) { state().frozen = frozen; }

  /// What is added to products with this weight wherever it is used, unless a Context names other adapters;
  /// null: nothing. Copies of the parameter have a copy of it.
  const std::shared_ptr<WeightAdapter<T>>& adapter() const { return state().adapter; }
  void set_adapter(std::shared_ptr<WeightAdapter<T>> adapter) { state().adapter = std::move(adapter); }

 private:
  void copy_adapter(const Parameter& other) {
    const auto& theirs = other.state_->adapter;
    state_->adapter = theirs == nullptr ? nullptr : std::make_shared<WeightAdapter<T>>(*theirs);
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

/// A low-rank term of some rows of a weight: y[rows] += scale B A dropout(x). LoRA: Hu et al. 2021.
template <class T>
struct LowRankPart {
  std::string module{};   ///< the name of the rows, such as "encoder.layers.0.self_attn.q_proj"
  index_t first_row = 0;  ///< of the weight's rows
  index_t rows = 0;
  Parameter<T> a{};  ///< (r, in)
  Parameter<T> b{};  ///< (rows, r)
  double alpha = 0;
  bool rank_stabilized = false;
  double dropout = 0;  ///< of x, in training

  index_t rank() const { return a.shape()[0]; }
  /// alpha / r; rank-stabilized alpha / sqrt(r) (rsLoRA: Kalajdzievski 2023).
  double scale() const {
    const auto r = static_cast<double>(rank());
    return alpha / (rank_stabilized ? std::sqrt(r) : r);
  }
};

/// What an adapter adds to the products with one weight.
template <class T>
struct WeightAdapter {
  std::vector<LowRankPart<T>> parts{};
};

/// The adapters of a model's weights, apart from the model: several serve one model, each in a Context of its
/// own (Context::with_adapters).
template <class T>
class AdapterSet {
 public:
  void add(const Parameter<T>& weight, std::shared_ptr<WeightAdapter<T>> adapter) {
    adapters_[weight.id()] = std::move(adapter);
  }
  /// Null: nothing is added to products with this weight.
  const std::shared_ptr<WeightAdapter<T>>& find(const Parameter<T>& weight) const {
    static const std::shared_ptr<WeightAdapter<T>> none;
    const auto at = adapters_.find(weight.id());
    return at == adapters_.end() ? none : at->second;
  }
  /// Adapted weights.
  std::size_t size() const noexcept { return adapters_.size(); }

 private:
  std::unordered_map<std::uint64_t, std::shared_ptr<WeightAdapter<T>>> adapters_;
};

/// A tensor that belongs to a module and is saved with it on request, but never trained.
template <class T>
struct Buffer {
  Tensor<T> value;
  bool persistent = false;  ///< part of the state dict
};

}  // namespace eigenformer
