#pragma once

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "eigenformer/autograd/tape/record.hpp"

namespace eigenformer {

/// A record of ops in the order in which they ran. backward() visits them in reverse order and releases the
/// saved tensors of each op after it. A tape may be used by one thread at a time.
template <class T>
class Tape {
 public:
  /// Called by backward() with the entry of a parameter whose gradient is complete.
  using OnComplete = std::function<void(typename Gradients<T>::Entry&)>;

  /// An empty tape.
  Tape();
  /// Releases what is recorded; Vars on it keep their values, and ops on them throw ValueError.
  ~Tape();
  /// Takes over what is recorded; Vars remain valid. The other tape can only be destroyed.
  Tape(Tape&&) noexcept = default;
  Tape& operator=(Tape&&) noexcept = delete;
  Tape(const Tape&) = delete;
  Tape& operator=(const Tape&) = delete;

  /// A leaf with this value (shared storage), whose gradient gradient() returns after backward().
  Var<T> variable(Tensor<T> value);

  /// The leaf of a parameter, one for all its uses. A constant while the function of a checkpoint runs
  /// forward. Context::use() calls it for unfrozen parameters.
  Var<T> parameter(const ParameterHandle<T>& p);

  /// Makes each layer of a Stack a checkpoint() from now on: less memory for the time of a second forward
  /// pass, with bit-identical results.
  void set_checkpoints_layers(bool on) { state_->checkpoints_layers = on; }
  /// The value of set_checkpoints_layers(); false at first.
  bool checkpoints_layers() const noexcept { return state_->checkpoints_layers; }
  /// Whether the function of a checkpoint is running forward, so that nothing is recorded.
  bool in_checkpoint() const noexcept { return state_->checkpointed != nullptr; }

  /// For checkpoint(): calls run(), which must record nothing, and records its result as an op of these
  /// inputs. The backward of that op calls again(tape), which records, and propagates through what it
  /// recorded. Throws ValueError when the result of run() is recorded, and for an input of another tape.
  Var<T> record_checkpoint(const std::vector<Var<T>>& inputs, const std::function<Var<T>()>& run,
                           detail::Recomputation<T> again);

  /// Discards everything recorded; ops on Vars recorded before throw ValueError.
  void clear() { state_->clear(); }
  /// The number of recorded nodes, leaves included.
  std::size_t size() const noexcept { return state_->nodes.size(); }

  /// Adds d loss / d parameter to `gradients` for every recorded parameter and consumes the tape. Throws
  /// ShapeError when loss does not have one element, or an entry of `gradients` does not have the shape of
  /// its parameter; ValueError when loss is not recorded on this tape or is itself a parameter, when a
  /// recorded parameter is missing in `gradients`, and when a tensor that a gradient depends on was changed
  /// in place after its use (see Tensor::mark_changed).
  ///
  /// When it throws, also for an exception of an op, `gradients` are as they were before; the tape is
  /// consumed if the backward of an op has begun. For this, entries that are already written are copied until
  /// backward returns; entries after zero() are not.
  ///
  /// `complete` is called with the entry of each recorded parameter as soon as this backward no longer writes
  /// to it, so that a gradient can be sent, or added elsewhere and reset, before the others are complete.
  void backward(const Var<T>& loss, Gradients<T>& gradients, const OnComplete& complete = {});
  /// The same for a tape without parameters, which has only variable() leaves.
  void backward(const Var<T>& loss);
  /// The same from an output of any shape, with `cotangent` as the gradient with respect to it. Throws
  /// ShapeError when their shapes differ, and as above.
  void backward(const Var<T>& output, const Tensor<T>& cotangent, Gradients<T>& gradients,
                const OnComplete& complete = {});

  /// The gradient of a variable() leaf by the last backward(), zeros if the output does not depend on it.
  /// Throws ValueError for any other Var.
  Tensor<T> gradient(const Var<T>& leaf) const;

 private:
  // Visits the nodes from the last to `first`. A checkpoint appends nodes, none of them a parameter's, and
  // removes them again, so addresses of nodes and versions must not be kept.
  void run_backward(Gradients<T>& gradients, std::size_t first, const OnComplete& complete = {}) {
    auto& nodes = state_->nodes;
    Profiler& profiler = Runtime::instance().profiler();
    for (auto i = static_cast<std::int32_t>(nodes.size()) - 1; i >= static_cast<std::int32_t>(first); --i) {
      auto& node = state_->node(i);
      if (node.leaf) {
        if (node.parameter == nullptr) {
          take_leaf(i);
        } else if (complete) {
          complete(*gradients.find(node.parameter->id));  // all its uses were recorded later
        }
        continue;
      }
      const bool runs = node.written && (node.backward || node.again != nullptr);
      for (auto& saved = state_->saved; !saved.empty() && saved.back().node == i; saved.pop_back()) {
        if (runs && saved.back().changed()) refuse_changed(saved.back());
      }
      if (node.again != nullptr) {
        const auto again = std::move(node.again);
        Tensor<T> dy = std::exchange(node.gradient, Tensor<T>());
        if (runs) run_checkpoint(*again, std::move(dy), gradients);
        continue;
      }
      if (runs) {
        const OpScope scope(profiler, node.op, true);
        Backward<T> b(*state_, &gradients, i);
        node.gradient = Tensor<T>();
        node.backward(b);
      }
      node.backward = nullptr;
      node.gradient = Tensor<T>();
    }
  }

  // Records the function of a checkpoint at the end of the tape and propagates through its ops, which write
  // the gradients of their inputs as if they had been recorded in place of the checkpoint.
  void run_checkpoint(detail::Recomputation<T>& again, Tensor<T> dy, Gradients<T>& gradients) {
    auto& nodes = state_->nodes;
    const std::size_t first = nodes.size(), versions = state_->saved.size();
    std::int32_t output = -1;
    {
      Var<T> y = again(*this);
      again = nullptr;  // and with it the inputs
      if (y.shape() != dy.shape()) {
        throw ShapeError("checkpoint",
                         {"the function returned ", dy.shape(), " in the forward pass and ", y.shape(),
                          " when it was recomputed, must be the same both times"},
                         {dy.shape(), y.shape()});
      }
      if (y.recorded() && static_cast<std::size_t>(y.node()) < first) y = copy_of(y);
      output = y.node();
    }
    for (std::size_t i = first; i < nodes.size(); ++i) {
      if (nodes[i].parameter == nullptr) continue;
      throw ValueError(
          "checkpoint",
          {"the function used parameter '", nodes[i].parameter->name,
           "' when it was recomputed, but not in the forward pass; must be the same both times"});
    }
    if (output >= 0) {
      auto& last = state_->node(output);
      last.gradient = std::move(dy);
      last.written = true;
      run_backward(gradients, first);
    }
    nodes.erase(nodes.begin() + static_cast<std::ptrdiff_t>(first), nodes.end());
    state_->saved.erase(state_->saved.begin() + static_cast<std::ptrdiff_t>(versions), state_->saved.end());
  }

  // An op that passes its gradient through.
  Var<T> copy_of(const Var<T>& x) {
    detail::TapeNode<T> node;
    node.op = "checkpoint";
    node.inputs = {x.node()};
    node.backward = [](Backward<T>& b) { b.pass(0, b.dy()); };
    return detail::append_node(state_, std::move(node), x.value());
  }

  // The gradient of a variable gets memory that is not shared, not even with the caller's cotangent.
  void take_leaf(std::int32_t i) {
    auto& node = state_->node(i);
    if (static_cast<std::size_t>(i) >= state_->leaf_gradients.size()) return;  // made inside a checkpoint
    Tensor<T>& gradient = state_->leaf_gradients[static_cast<std::size_t>(i)];
    gradient = node.written ? std::move(node.gradient) : Tensor<T>::zeros(node.shape);
    if (!gradient.unique()) gradient = gradient.clone();
  }

  // Undoes the writes of a backward that failed.
  void restore(Gradients<T>& gradients) {
    for (auto& node : state_->nodes) {
      if (node.parameter == nullptr || !node.written) continue;
      auto& entry = *gradients.find(node.parameter->id);
      if (node.gradient.defined()) {
        entry.writable().copy_from(node.gradient);
      } else {
        entry.reset();
      }
    }
    state_->leaf_gradients.clear();
    state_->leaf_generation = 0;
  }

  [[noreturn]] void refuse_changed(const detail::SavedVersion& saved) const {
    const auto& node = state_->node(saved.node);
    throw ValueError(
        "backward", {description(saved), " was changed after it was recorded, and the gradient of '", node.op,
                     "' needs its old values; run the forward pass again"});
  }

  std::string description(const detail::SavedVersion& saved) const {
    for (const auto& node : state_->nodes) {
      if (node.parameter == nullptr || !saved.watch.same_storage(node.parameter->value.watch())) continue;
      return "parameter '" + node.parameter->name + "' of shape " + node.shape.str();
    }
    const auto& node = state_->node(saved.node);
    const std::string op = std::string("'") + node.op + "'";
    if (saved.input == detail::SavedVersion::output)
      return "the output of " + op + " of shape " + node.shape.str();
    if (saved.input == detail::SavedVersion::other) {
      return saved.by_value ? "an index or mask of " + op : "a tensor that " + op + " was given";
    }
    const std::string input = "input " + std::to_string(saved.input) + " of " + op;
    const std::int32_t source = node.inputs[static_cast<std::size_t>(saved.input)];
    if (source < 0) return input + ", a constant or a frozen parameter,";
    const auto& from = state_->node(source);
    return input + ", " + (from.leaf ? "a variable" : std::string("the output of '") + from.op + "'") +
           " of shape " + from.shape.str() + ",";
  }

  struct Consumer {
    detail::TapeState<T>& state;
    ~Consumer() { state.clear(); }
  };

  void check_here(const Var<T>& v) const {
    if (!v.recorded() || v.tape() != state_)
      throw ValueError("backward", "the output was not recorded on this tape");
    if (v.generation() != state_->generation) {
      throw ValueError("backward",
                       "the tape was cleared or consumed by a backward after the output was recorded");
    }
  }

  std::shared_ptr<detail::TapeState<T>> state_;
};

template <class T>
Var<T> Tape<T>::record_checkpoint(const std::vector<Var<T>>& inputs, const std::function<Var<T>()>& run,
                                  detail::Recomputation<T> again) {
  struct Scope {
    detail::TapeState<T>& state;
    ~Scope() { state.checkpointed = nullptr; }
  };
  std::vector<ParameterHandle<T>> used;
  Tensor<T> y;
  {
    state_->checkpointed = &used;
    const Scope scope{*state_};
    const Var<T> result = run();
    if (result.recorded()) {
      throw ValueError("checkpoint",
                       "the function reads a recorded Var that is not among its inputs; give it as one");
    }
    y = result.value();
  }
  const std::vector<const Var<T>*> addresses = detail::addresses<T>(inputs);
  const auto tape = detail::tape_of<T>("checkpoint", y, addresses);
  if (tape != nullptr && tape != state_)
    throw ValueError("checkpoint", "an input was recorded on another tape than the context's");
  if (tape == nullptr && used.empty()) return Var<T>(std::move(y));
  SavedTensors saved;
  for (const Var<T>& x : inputs) saved.add(x);
  for (const auto& p : used) saved.add(p->value);
  Var<T> v = detail::append_op<T>("checkpoint", std::move(y), addresses, state_, saved, nullptr);
  state_->nodes.back().again = std::make_unique<detail::Recomputation<T>>(std::move(again));
  return v;
}

// Functions defined in a class are inline and compiled in every file that uses them, although
// eigenformer::compiled contains them.

template <class T>
Tape<T>::Tape() : state_(std::make_shared<detail::TapeState<T>>()) {}

template <class T>
Tape<T>::~Tape() {
  if (state_ == nullptr) return;
  state_->clear();
  state_->alive = false;
}

template <class T>
Var<T> Tape<T>::variable(Tensor<T> value) {
  detail::TapeNode<T> node;
  node.op = "variable";
  node.leaf = true;
  return detail::append_node(state_, std::move(node), std::move(value));
}

template <class T>
Var<T> Tape<T>::parameter(const ParameterHandle<T>& p) {
  auto at = state_->parameters.find(p->id);
  if (at == state_->parameters.end()) {
    detail::TapeNode<T> node;
    node.op = "parameter";
    node.leaf = true;
    node.parameter = p;
    at = state_->parameters.emplace(p->id, detail::append_node(state_, std::move(node), p->value).node())
             .first;
  }
  if (state_->checkpointed != nullptr) {
    state_->checkpointed->push_back(p);
    return Var<T>(p->value);
  }
  return Var<T>(p->value, state_, state_->generation, at->second);
}

template <class T>
void Tape<T>::backward(const Var<T>& loss, Gradients<T>& gradients, const OnComplete& complete) {
  if (loss.numel() != 1) {
    throw ShapeError("backward",
                     {"loss of shape ", loss.shape(),
                      " must have one element; give a cotangent "
                      "for anything else"},
                     {loss.shape()});
  }
  backward(loss, Tensor<T>::ones(loss.shape()), gradients, complete);
}

template <class T>
void Tape<T>::backward(const Var<T>& loss) {
  Gradients<T> none;
  backward(loss, none);
}

template <class T>
void Tape<T>::backward(const Var<T>& output, const Tensor<T>& cotangent, Gradients<T>& gradients,
                       const OnComplete& complete) {
  check_here(output);
  if (cotangent.shape() != output.shape()) {
    throw ShapeError(
        "backward",
        {"cotangent of shape ", cotangent.shape(), " must have the output's shape ", output.shape()},
        {cotangent.shape(), output.shape()});
  }
  for (const auto& node : state_->nodes) {
    if (node.parameter == nullptr) continue;
    const auto* entry = gradients.find(node.parameter->id);
    if (entry != nullptr && entry->value.shape() != node.shape) {
      throw ShapeError("backward",
                       {"the gradients hold parameter '", node.parameter->name, "' with shape ",
                        entry->value.shape(), ", it was recorded with ", node.shape},
                       {entry->value.shape(), node.shape});
    }
    if (entry == nullptr) {
      const std::string& name = node.parameter->name;
      throw ValueError("backward",
                       {(name.empty() ? "a parameter without a name" : "parameter '" + name + "'"),
                        " of shape ", node.shape, " was recorded but is missing in the gradients; ",
                        (node.parameter->copied
                             ? "it is a copy, and a copy is a parameter of its own: construct the gradients "
                               "with parameters() of the module that was called, or let both places share "
                               "one parameter by tie()"
                             : "construct them with it, or freeze it")});
    }
  }
  auto& nodes = state_->nodes;
  auto& last = state_->node(output.node());
  if (last.parameter != nullptr) throw ValueError("backward", "the output is a parameter itself");
  last.gradient = cotangent;
  last.written = true;
  state_->leaf_gradients.assign(nodes.size(), Tensor<T>());
  state_->leaf_generation = state_->generation;
  // Consumed even when an op throws: half of the closures are gone by then.
  const Consumer consumer{*state_};
  try {
    run_backward(gradients, 0, complete);
  } catch (...) {
    restore(gradients);
    throw;
  }
}

template <class T>
Tensor<T> Tape<T>::gradient(const Var<T>& leaf) const {
  if (leaf.tape() != state_ || leaf.generation() != state_->leaf_generation ||
      !state_->leaf_gradients[static_cast<std::size_t>(leaf.node())].defined()) {
    throw ValueError("gradient", "not a variable of this tape's last backward");
  }
  return state_->leaf_gradients[static_cast<std::size_t>(leaf.node())];
}

EIGENFORMER_INSTANCES(class Tape)

}  // namespace eigenformer
