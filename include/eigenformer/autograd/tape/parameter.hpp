#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "eigenformer/core/tensor/tensor.hpp"

namespace eigenformer {

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

 private:
  detail::ParameterState<T>& state() const {
    if (state_ == nullptr) throw ValueError("parameter", "this parameter is absent or was moved from");
    return *state_;
  }

  ParameterHandle<T> state_;
};

static_assert(std::is_nothrow_move_constructible_v<Parameter<float>>);
static_assert(std::is_nothrow_move_assignable_v<Parameter<float>>);

/// A tensor that belongs to a module and is saved with it on request, but never trained.
template <class T>
struct Buffer {
  Tensor<T> value;
  bool persistent = false;  ///< part of the state dict
};

}  // namespace eigenformer
