#pragma once

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <cstring>
#include <functional>
#include <iomanip>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <type_traits>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "eigenformer/autograd/tape/parameter.hpp"

namespace eigenformer {

/// A module: a plain struct with `static void fields(auto& self, auto&& visit)`, which calls visit("name",
/// member) for each parameter, buffer and sub-module. Names, state dict, counting, summary, saving and
/// loading are derived from this list.
template <class M>
concept Module = requires(M& m) {
  M::fields(m, [](const char*, auto&) {});
};

namespace detail {

inline std::string join_name(const std::string& prefix, const std::string& name) {
  if (prefix.empty()) return name;
  return name.empty() ? prefix : prefix + "." + name;
}

template <class F, class Member>
void visit_member(const std::string& name, Member& member, F& f);

template <class F, class M>
void visit_fields(const std::string& prefix, M& module, F& f) {
  std::remove_const_t<M>::fields(module, [&](const std::string& name, auto& member) {
    visit_member(join_name(prefix, name), member, f);
  });
}

template <class F, class Member>
void visit_member(const std::string& name, Member& member, F& f) {
  using M = std::remove_const_t<Member>;
  if constexpr (is_instance<M, Parameter> || is_instance<M, Buffer>) {
    f(name, member);
  } else if constexpr (is_instance<M, std::vector>) {
    std::size_t i = 0;
    for (auto& item : member) visit_member(join_name(name, std::to_string(i++)), item, f);
  } else if constexpr (is_instance<M, std::optional>) {
    if (member) visit_member(name, *member, f);
  } else {
    visit_fields(name, member, f);
  }
}

/// What is called for each field of a module. Its functions are virtual so that one walk through a model's
/// modules serves all callers and is compiled once.
template <class T>
class FieldVisitor {
 public:
  virtual void operator()(const std::string& name, Parameter<T>& parameter) = 0;
  virtual void operator()(const std::string& name, Buffer<T>& buffer) = 0;

 protected:
  ~FieldVisitor() = default;
};

// Calls f with fields that are const if the module is.
template <class T, bool is_const, class F>
class FieldCaller final : public FieldVisitor<T> {
 public:
  explicit FieldCaller(F& f) : f_(f) {}
  void operator()(const std::string& name, Parameter<T>& parameter) override { call(name, parameter); }
  void operator()(const std::string& name, Buffer<T>& buffer) override { call(name, buffer); }

 private:
  template <class X>
  void call(const std::string& name, X& member) {
    f_(name, static_cast<std::conditional_t<is_const, const X, X>&>(member));
  }
  F& f_;
};

/// Calls f(name, member) for every Parameter and Buffer of a module, in the order of its fields, with dotted
/// names. Tied parameters appear under each of their names, absent ones too. If the module has a
/// `value_type`, all must be of that type.
template <class M, class F>
void for_each_field(M& module, F&& f) {
  using Plain = std::remove_const_t<M>;
  if constexpr (requires { typename Plain::value_type; }) {
    using T = typename Plain::value_type;
    detail::FieldCaller<T, std::is_const_v<M>, std::remove_reference_t<F>> caller(f);
    detail::visit_fields<detail::FieldVisitor<T>>(std::string(), const_cast<Plain&>(module), caller);
  } else {
    detail::visit_fields(std::string(), module, f);
  }
}

// Calls f(name, parameter) for every defined parameter, under each of its names.
template <class M, class F>
void for_each_place(M& module, F&& f) {
  for_each_field(module, [&](const std::string& name, auto& member) {
    if constexpr (is_instance<std::remove_cvref_t<decltype(member)>, Parameter>) {
      if (member.defined()) f(name, member);
    }
  });
}

}  // namespace detail

/// Calls f(name, parameter) once for every defined parameter, with its first name.
template <class M, class F>
void for_each_parameter(M& module, F&& f) {
  std::unordered_set<std::uint64_t> seen;
  detail::for_each_place(module, [&](const std::string& name, auto& parameter) {
    if (seen.insert(parameter.id()).second) f(name, parameter);
  });
}

/// Gives every parameter its dotted name in `module`, for error messages and checkpoints. Models call it at
/// the end of their constructors.
template <class M>
void name_parameters(M& module) {
  for_each_parameter(module, [](const std::string& name, auto& parameter) { parameter.set_name(name); });
}

namespace detail {

/// parameters() of one type of module: a class template, because compilers agree on the names of its
/// members, and one compiler's file links what another's library holds.
template <class M>
struct ParameterList {
  using T = typename std::remove_const_t<M>::value_type;
  static std::vector<ParameterHandle<T>> of(M& module);
};

template <class M>
auto ParameterList<M>::of(M& module) -> std::vector<ParameterHandle<T>> {
  std::vector<ParameterHandle<T>> handles;
  std::unordered_map<std::uint64_t, std::vector<std::string>> names;
  for_each_place(module, [&](const std::string& name, auto& parameter) {
    std::vector<std::string>& known = names[parameter.id()];
    if (known.empty()) handles.push_back(parameter.handle());
    known.push_back(name);
  });
  for (const auto& handle : handles) {
    std::vector<std::string>& known = names[handle->id];
    // The longest name wins: the name in a model over that in a single layer.
    if (handle->name.size() < known[0].size()) handle->name = known[0];
    if (handle->name != known[0]) continue;
    known.erase(known.begin());
    if (handle->aliases != known) handle->aliases = std::move(known);
  }
  return handles;
}

}  // namespace detail

/// The distinct parameters of a module, in order: the argument of Gradients and optimizers. Gives parameters
/// that only a sub-module named their full names, and tied ones their further names (ParameterGroup patterns
/// match all of them).
template <class M>
auto parameters(M& module) {
  return detail::ParameterList<M>::of(module);
}

/// Makes the parameters of `module` those of `source`, a module with parameters of the same names and shapes
/// in another place of one model: the model computes with one set of values in both places, and each shared
/// parameter has one gradient, is saved once and counts once (see Parameter::tied()). Call it in the model's
/// constructor, so that loading a model ties it, too. The values are those of `source`; buffers stay as they
/// are. A model with tied parameters cannot be copied, only made anew and loaded. Throws ValueError for other
/// names or shapes; then nothing changes.
///
///     ef::tie(decoder_layer.self_attn, encoder_layer.self_attn);
template <class M>
void tie(M& module, M& source) {
  using T = typename M::value_type;
  const auto parameters_of = [](M& of) {
    std::vector<std::pair<std::string, Parameter<T>*>> found;
    detail::for_each_place(
        of, [&](const std::string& name, auto& parameter) { found.emplace_back(name, &parameter); });
    return found;
  };
  const auto ours = parameters_of(module), theirs = parameters_of(source);
  for (std::size_t i = 0; i < std::max(ours.size(), theirs.size()); ++i) {
    if (i < ours.size() && i < theirs.size() && ours[i].first == theirs[i].first &&
        ours[i].second->shape() == theirs[i].second->shape())
      continue;
    const auto text = [i](const auto& list) {
      return i < list.size() ? "'" + list[i].first + "' of shape " + list[i].second->shape().str()
                             : std::string("nothing");
    };
    throw ValueError("tie", {"parameter ", i, " is ", text(ours), " in the module and ", text(theirs),
                             " in the source, expected the same names and shapes"});
  }
  for (std::size_t i = 0; i < ours.size(); ++i) *ours[i].second = theirs[i].second->tied();
}

/// Number of parameter values, frozen ones included; tied parameters count once.
template <class M>
index_t count_parameters(const M& module) {
  index_t n = 0;
  for_each_parameter(module,
                     [&](const std::string&, const auto& parameter) { n += parameter.value().numel(); });
  return n;
}

/// One entry of a state dict.
template <class T>
struct StateEntry {
  std::string name;      ///< dotted name
  Tensor<T> value;       ///< shares storage with the module, optimizer or average it came from
  std::string alias_of;  ///< of a tied parameter's further names: its first name; otherwise empty
};

/// Names and tensors of a module as in PyTorch's state_dict(): parameters and persistent buffers, tied
/// parameters under each of their names. The tensors share storage with the module.
template <class M>
auto state_dict(const M& module) {
  using T = typename M::value_type;
  std::vector<StateEntry<T>> entries;
  std::unordered_map<std::uint64_t, std::string> first;
  detail::for_each_field(module, [&](const std::string& name, const auto& member) {
    if constexpr (detail::is_instance<std::remove_cvref_t<decltype(member)>, Parameter>) {
      if (!member.defined()) return;
      const auto [at, inserted] = first.emplace(member.id(), name);
      entries.push_back({name, member.value(), inserted ? std::string() : at->second});
    } else if (member.persistent) {
      entries.push_back({name, member.value, {}});
    }
  });
  return entries;
}

/// How load_state_dict matches given tensors with those of a module.
struct LoadOptions {
  /// false: missing and unexpected names are reported instead of refused. Wrong shapes are always refused.
  bool strict = true;
  /// Maps a given name to the module's, such as "model.encoder.layer_norm.weight" to "encoder.norm.weight";
  /// an empty result skips the tensor. "NAME[first:last]" is rows of the module's tensor NAME, which several
  /// given ones make up: all of its rows must be given, each once, under one of its names if it is tied.
  /// packed_projection() does this for queries, keys and values. Unset: names are used unchanged.
  std::function<std::string(const std::string&)> rename{};
  /// When loading from a file: parameters with the file's element type become views of its mapped memory
  /// (copy-on-write), without a second copy. false: the values are copied into the parameters' own memory.
  bool map = true;
};

/// The name of the rows of a fused in-projection, for LoadOptions::rename, for a name of separate queries,
/// keys and values: "x.q_proj.weight" becomes "x.in_proj_weight[0:queries]", "x.k_proj.bias" becomes
/// "x.in_proj_bias[queries:queries + keys]", and "x.v_proj." the `keys` rows after these. Other names are
/// returned unchanged. queries: rows of q_proj.weight, num_heads * head_dim; keys: those of k_proj.weight and
/// v_proj.weight, 0: as queries.
inline std::string packed_projection(const std::string& name, index_t queries, index_t keys = 0) {
  if (keys == 0) keys = queries;
  const std::size_t dot = name.rfind("_proj.");
  if (dot == std::string::npos || dot == 0 || (dot > 1 && name[dot - 2] != '.')) return name;
  const char part = name[dot - 1];
  if (part != 'q' && part != 'k' && part != 'v') return name;
  const index_t first = part == 'q' ? 0 : part == 'k' ? queries : queries + keys;
  return name.substr(0, dot - 1) + "in_proj_" + name.substr(dot + 6) + "[" + std::to_string(first) + ":" +
         std::to_string(first + (part == 'q' ? queries : keys)) + "]";
}

/// Names without a counterpart; empty after a strict load.
struct LoadReport {
  std::vector<std::string> missing;     ///< the module's names that were not given; those do not change
  std::vector<std::string> unexpected;  ///< given names (before renaming) that the module does not have
};

namespace detail {

/// A tensor that a loader offers: its name, its shape, and why it cannot be loaded (empty: it can).
struct GivenTensor {
  std::string name;
  Shape shape;
  std::string unfit{};
  bool alias = false;  ///< a further name of a tensor that is also given under another
};

inline void append_listed(std::string& list, const std::string& item) {
  list += (list.empty() ? "" : ", ") + item;
}

inline std::string join_list(const std::vector<std::string>& items) {
  std::string list;
  for (const std::string& item : items) append_listed(list, item);
  return list;
}

/// Whether two tensors hold the same bits. Tensors without memory do, since loaders refuse those anyway.
template <class T>
bool same_bits(const Tensor<T>& a, const Tensor<T>& b) {
  if (!a.defined() || !b.defined() || a.data() == b.data()) return true;
  return a.numel() == b.numel() &&
         std::memcmp(a.data(), b.data(), static_cast<std::size_t>(a.numel()) * sizeof(T)) == 0;
}

// The module's tensor and the rows of it that a renamed tensor is, "NAME[first:last]"; false for other names.
inline bool parse_rows(const std::string& name, std::string& tensor, index_t& first, index_t& last) {
  const std::size_t open = name.rfind('['), colon = name.find(':', open);
  if (open == std::string::npos || colon == std::string::npos || name.back() != ']') return false;
  const auto number = [&](std::size_t begin, std::size_t end, index_t& to) {
    return std::from_chars(name.data() + begin, name.data() + end, to).ptr == name.data() + end &&
           end > begin;
  };
  if (!number(open + 1, colon, first) || !number(colon + 1, name.size() - 1, last)) return false;
  tensor = name.substr(0, open);
  return first >= 0 && first < last;
}

// Splits the entries of which rows are given: into these rows, and those between them, which are missing.
// index: given tensors by their renamed names. Names rows that no entry has, or that are given twice, in
// `wrong`.
template <class T>
void split_rows(std::vector<StateEntry<T>>& ours, const std::map<std::string, std::size_t>& index,
                std::string& wrong) {
  std::map<std::string, std::map<index_t, index_t>> parts;  // by tensor: [first, last)
  for (const auto& given : index) {
    std::string tensor;
    index_t first = 0, last = 0;
    if (!parse_rows(given.first, tensor, first, last)) continue;
    if (!parts[tensor].emplace(first, last).second) append_listed(wrong, given.first + " is given twice");
  }
  for (const auto& [tensor, rows] : parts) {
    const auto at = std::find_if(ours.begin(), ours.end(),
                                 [&, &name = tensor](const StateEntry<T>& e) { return e.name == name; });
    if (at == ours.end() || at->value.rank() == 0) continue;  // reported as unexpected
    const StateEntry<T> whole = *at;
    const std::string leader = whole.alias_of.empty() ? whole.name : whole.alias_of;
    std::erase_if(ours, [&](const StateEntry<T>& e) { return e.name == leader || e.alias_of == leader; });
    const auto add = [&](index_t first, index_t last) {
      if (first == last) return;
      ours.push_back({whole.name + "[" + std::to_string(first) + ":" + std::to_string(last) + "]",
                      whole.value.rows(first, last - first),
                      {}});
    };
    index_t done = 0;
    for (const auto& [first, last] : rows) {
      if (first < done || last > whole.value.dim(0)) {
        append_listed(wrong, whole.name + "[" + std::to_string(first) + ":" + std::to_string(last) + "] " +
                                 (first < done ? "overlaps other rows that are given"
                                               : "is outside of shape " + whole.value.shape().str()));
        continue;
      }
      add(done, first);
      add(first, last);
      done = last;
    }
    add(done, whole.value.dim(0));
  }
}

// Where each name is among the given tensors; lists names that are given twice.
inline std::map<std::string, std::size_t> index_of_names(const std::vector<GivenTensor>& given,
                                                         const LoadOptions& options, std::string& twice) {
  std::map<std::string, std::size_t> index;
  for (std::size_t i = 0; i < given.size(); ++i) {
    const std::string name = options.rename ? options.rename(given[i].name) : given[i].name;
    if (name.empty()) continue;
    const auto [at, inserted] = index.emplace(name, i);
    if (!inserted)
      append_listed(twice, name + " (by " + given[at->second].name + " and " + given[i].name + ")");
  }
  return index;
}

// What does not fit when a state dict is loaded, each a list for the message.
struct LoadProblems {
  std::string unexpected, twice, wrong_rows, misshaped, unfit, different;

  void require_none(const std::vector<std::string>& missing, bool strict) const {
    std::string problems;
    const auto tell = [&](const char* what, const std::string& list) {
      if (!list.empty()) problems += std::string(problems.empty() ? "" : ". ") + what + ": " + list;
    };
    if (strict) tell("missing", join_list(missing));
    if (strict) tell("unexpected", unexpected);
    tell("given twice", twice);
    tell("wrong rows", wrong_rows);
    tell("wrong shape", misshaped);
    tell("wrong type", unfit);
    tell("tied in the module, but given with different values", different);
    if (!problems.empty()) throw ValueError("load_state_dict", {problems, "."});
  }
};

/// Matches given tensors with those of a state dict and, after checking everything, calls assign(entry of
/// ours, index of the given one) for each pair. With options.rename an entry may be rows of one of ours.
/// value(index) is a given tensor; of tensors given under several names of one tied parameter, the bits must
/// be the same. Throws ValueError that lists *all* problems; then nothing is assigned.
template <class T, class V, class F>
LoadReport match_state_dict(std::vector<StateEntry<T>> ours, const std::vector<GivenTensor>& given,
                            const LoadOptions& options, V&& value, F&& assign) {
  LoadReport report;
  LoadProblems problems;
  auto index = index_of_names(given, options, problems.twice);
  if (options.rename) split_rows(ours, index, problems.wrong_rows);
  std::unordered_map<std::string, std::vector<const StateEntry<T>*>> groups;
  for (const auto& e : ours) groups[e.alias_of.empty() ? e.name : e.alias_of].push_back(&e);
  std::unordered_set<std::size_t> used;
  std::vector<std::pair<const StateEntry<T>*, std::size_t>> pairs;
  for (const auto& e : ours) {
    if (!e.alias_of.empty()) continue;
    const std::string* name = nullptr;
    std::size_t source = 0;
    for (const auto* candidate : groups[e.name]) {
      const auto at = index.find(candidate->name);
      if (at == index.end()) continue;
      used.insert(at->second);
      if (name == nullptr) {
        name = &at->first;
        source = at->second;
        continue;
      }
      // A further name of a tied parameter.
      const GivenTensor &first = given[source], &other = given[at->second];
      if (first.alias || other.alias || !first.unfit.empty() || first.shape != e.value.shape()) continue;
      if (!other.unfit.empty() || other.shape != first.shape ||
          !same_bits<T>(value(source), value(at->second)))
        append_listed(problems.different, *name + " and " + at->first);
    }
    if (name == nullptr) {
      report.missing.push_back(e.name);
    } else if (!given[source].unfit.empty()) {
      append_listed(problems.unfit, e.name + " " + given[source].unfit);
    } else if (given[source].shape != e.value.shape()) {
      append_listed(problems.misshaped,
                    e.name + " is " + given[source].shape.str() + ", must be " + e.value.shape().str());
    } else {
      pairs.emplace_back(&e, source);
    }
  }
  for (const auto& [name, i] : index) {
    if (used.count(i) > 0 || given[i].alias) continue;
    report.unexpected.push_back(given[i].name);
    append_listed(problems.unexpected, given[i].name == name ? name : name + " (" + given[i].name + ")");
  }
  problems.require_none(report.missing, options.strict);
  for (const auto& [entry, source] : pairs) assign(*entry, source);
  return report;
}

}  // namespace detail

/// Copies the tensors of a state dict into a module. A tied parameter needs only one of its names; tensors
/// given under several must be equal. Returns the names without a counterpart, which is empty unless
/// options.strict is false. Throws ValueError that lists *all* missing, unexpected and misshaped names and
/// tied ones with different values, and for a tensor whose memory was released; then nothing changes.
///
///     auto report = ef::load_state_dict(model, entries, {.strict = false});
template <class M, class T>
LoadReport load_state_dict(M& module, const std::vector<StateEntry<T>>& entries,
                           const LoadOptions& options = {}) {
  std::vector<detail::GivenTensor> given;
  for (const auto& e : entries) given.push_back({e.name, e.value.shape(), {}, !e.alias_of.empty()});
  std::vector<std::pair<Tensor<T>, const Tensor<T>*>> copies;
  const LoadReport report = detail::match_state_dict(
      state_dict(module), given, options, [&](std::size_t i) { return entries[i].value; },
      [&](const StateEntry<T>& entry, std::size_t i) {
        for (const Tensor<T>* x : {&entry.value, &entries[i].value}) {
          if (x->defined() || x->numel() == 0) continue;
          throw ValueError("load_state_dict",
                           {"the ", x == &entry.value ? "module's" : "given", " '", entry.name,
                            "' has no memory, which was released or never allocated"});
        }
        copies.emplace_back(entry.value, &entries[i].value);
      });
  for (auto& [target, source] : copies) target.copy_from(*source);
  return report;
}

/// A table of a model's parameters as text: name, shape and number of values, with totals; tied ones are
/// marked and counted once.
template <class M>
std::string summary(const M& module) {
  const auto entries = state_dict(module);
  std::size_t width = 9;
  std::size_t shape_width = 5;
  for (const auto& e : entries) {
    width = std::max(width, e.name.size());
    shape_width = std::max(shape_width, e.value.shape().str().size());
  }
  std::ostringstream out;
  const auto row = [&](const std::string& name, const std::string& shape, const auto& values,
                       const std::string& rest = "") {
    out << std::left << std::setw(static_cast<int>(width)) << name << "  "
        << std::setw(static_cast<int>(shape_width)) << shape << "  " << std::right << std::setw(12) << values
        << rest << '\n';
  };
  row("parameter", "shape", "values");
  std::map<std::string, index_t> by_module;
  for (const auto& e : entries) {
    if (e.alias_of.empty()) {
      row(e.name, e.value.shape().str(), e.value.numel());
      by_module[e.name.substr(0, e.name.find('.'))] += e.value.numel();
    } else {
      row(e.name, e.value.shape().str(), "tied", "  to " + e.alias_of);
    }
  }
  out << '\n';
  for (const auto& [name, values] : by_module) row(name, "", values);
  row("total", "", count_parameters(module));
  return out.str();
}

}  // namespace eigenformer

/// EIGENFORMER_INSTANCE of a module of T, with the function that visits its fields. Used in namespace
/// eigenformer. Modules must move without exceptions, as parts of vectors do.
#define EIGENFORMER_MODULE_INSTANCE(MODULE, T)                 \
  static_assert(std::is_nothrow_move_constructible_v<MODULE>); \
  EIGENFORMER_INSTANCE(struct MODULE)                          \
  EIGENFORMER_INSTANCE(void detail::visit_fields(const std::string&, MODULE&, detail::FieldVisitor<T>&))
/// The same of a class template for float and double.
#define EIGENFORMER_MODULE_INSTANCES(MODULE)        \
  EIGENFORMER_MODULE_INSTANCE(MODULE<float>, float) \
  EIGENFORMER_MODULE_INSTANCE(MODULE<double>, double)
