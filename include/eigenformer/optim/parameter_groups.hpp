#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/core/base/stable_sort.hpp"
#include "eigenformer/nn/module/module.hpp"
#include "eigenformer/nn/module/pattern.hpp"

namespace eigenformer {

/// Parameters with a learning rate factor or weight decay of their own.
///
/// A parameter belongs to the first group whose pattern matches one of its names (a tied parameter has
/// several). Parameters outside all groups have rate 1. Weight decay that no group sets is the optimizer's
/// for tensors of rank 2 and above, and 0 for all others: norms and biases do not decay.
///
///     ef::AdamW<float> optimizer(
///         ef::parameters(model),
///         {.weight_decay = 0.1, .groups = {{.pattern = "encoder.*", .rate = 0.1},
///                                          {.pattern = "*.embedding.weight", .weight_decay = 0}}});
///
/// To decay all parameters as PyTorch's optimizers do: `.groups = {{.pattern = "*", .weight_decay = 0.1}}`.
struct ParameterGroup {
  std::string pattern;  ///< matches whole dotted names: '*' stands for any text, '?' for one character
  double rate = 1;      ///< factor of the learning rate of each step
  std::optional<double> weight_decay{};  ///< unset: the optimizer's for rank 2 and above, otherwise 0
};
/// Groups in order of precedence; empty: all parameters have the optimizer's rate and decay.
using ParameterGroups = std::vector<ParameterGroup>;

namespace detail {

// The rate and decay of one parameter.
struct StepRule {
  double rate = 1;  // times the learning rate
  double weight_decay = 0;
};

// Edit distance between a name and a pattern; text matched by '*' costs nothing.
EIGENFORMER_FUNCTION std::size_t pattern_distance(std::string_view pattern, std::string_view name);

// "'a.weight', 'b.weight', 'c.bias'": the names nearest to a pattern.
template <class T>
std::string nearest_names(const std::string& pattern, const std::vector<ParameterHandle<T>>& parameters) {
  std::vector<std::pair<std::size_t, std::string>> names;
  for (const auto& p : parameters) {
    names.emplace_back(pattern_distance(pattern, p->name), p->name);
    for (const std::string& alias : p->aliases) names.emplace_back(pattern_distance(pattern, alias), alias);
  }
  stable_sort(std::span(names), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string list;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, names.size()); ++i)
    list += (i == 0 ? "'" : ", '") + names[i].second + "'";
  return list;
}

template <class T>
bool matches_any_name(std::string_view pattern, const ParameterState<T>& p) {
  return matches_pattern(pattern, p.name) ||
         std::any_of(p.aliases.begin(), p.aliases.end(),
                     [&](const std::string& alias) { return matches_pattern(pattern, alias); });
}

// The first group whose pattern matches a parameter; null if there is none.
template <class T>
const ParameterGroup* group_of(const ParameterState<T>& p, const ParameterGroups& groups) {
  for (const ParameterGroup& group : groups) {
    if (matches_any_name(group.pattern, p)) return &group;
  }
  return nullptr;
}

template <class T>
bool holds_any(const ParameterGroup& group, const ParameterGroups& groups,
               const std::vector<ParameterHandle<T>>& parameters) {
  return std::any_of(parameters.begin(), parameters.end(),
                     [&](const auto& p) { return group_of(*p, groups) == &group; });
}

/// The groups that contain one of these parameters, in order: the groups for an optimizer over some of a
/// model's parameters, which then treats each as an optimizer over all of them would.
template <class T>
ParameterGroups groups_of(const std::vector<ParameterHandle<T>>& parameters, const ParameterGroups& groups) {
  ParameterGroups kept;
  for (const ParameterGroup& group : groups) {
    if (holds_any(group, groups, parameters)) kept.push_back(group);
  }
  return kept;
}

// One rule for each parameter. Throws ValueError (`[op] ...`) for invalid rates and for a group without
// parameters.
template <class T>
std::vector<StepRule> step_rules(const char* op, const std::vector<ParameterHandle<T>>& parameters,
                                 const ParameterGroups& groups, double weight_decay) {
  for (const ParameterGroup& group : groups) {
    const auto require = [&](double value, const char* field) {
      if (value >= 0 && std::isfinite(value)) return;
      throw ValueError(
          op, {field, " of group '", group.pattern, "' is ", value, ", must be finite and not negative"});
    };
    require(group.rate, "rate");
    if (group.weight_decay) require(*group.weight_decay, "weight_decay");
  }
  for (const ParameterGroup& group : groups) {
    if (holds_any(group, groups, parameters)) continue;
    const std::string& pattern = group.pattern;
    const bool matches = std::any_of(parameters.begin(), parameters.end(),
                                     [&](const auto& p) { return matches_any_name(pattern, *p); });
    throw ValueError(op, matches
                             ? "group '" + pattern +
                                   "' is empty: earlier groups already hold every parameter that it matches"
                             : "group '" + pattern + "' matches no parameter; the nearest names are " +
                                   nearest_names(pattern, parameters));
  }
  std::vector<StepRule> rules;
  for (const auto& p : parameters) {
    StepRule& rule = rules.emplace_back(StepRule{1, p->value.rank() < 2 ? 0 : weight_decay});
    if (const ParameterGroup* group = group_of(*p, groups); group != nullptr)
      rule = {group->rate, group->weight_decay.value_or(rule.weight_decay)};
  }
  return rules;
}

}  // namespace detail

/// Freezes the parameters with a name that matches a pattern (see ParameterGroup): they get no gradient, and
/// optimizers made afterwards keep no moments for them. patterns: separated by commas; empty: nothing
/// happens. Returns how many of the parameters match. Throws ValueError for a pattern that matches none, or
/// if no parameter would be left to train; then nothing changes.
///
///     ef::freeze(ef::parameters(model), "encoder.*,*.embedding.weight");
template <class T>
index_t freeze(const std::vector<ParameterHandle<T>>& parameters, std::string_view patterns) {
  std::vector<ParameterHandle<T>> matched;
  for (std::string_view rest = patterns; !rest.empty();) {
    const std::string_view pattern = rest.substr(0, rest.find(','));
    rest.remove_prefix(std::min(rest.size(), pattern.size() + 1));
    const std::size_t before = matched.size();
    for (const auto& p : parameters) {
      if (detail::matches_any_name(pattern, *p)) matched.push_back(p);
    }
    if (matched.size() > before) continue;
    throw ValueError("freeze", {"'", pattern, "' matches no parameter; the nearest names are ",
                                detail::nearest_names(std::string(pattern), parameters)});
  }
  index_t frozen = 0, left = 0;
  for (const auto& p : parameters) {
    const bool fits = std::find(matched.begin(), matched.end(), p) != matched.end();
    frozen += fits ? 1 : 0;
    left += fits || p->frozen ? 0 : 1;
  }
  if (frozen > 0 && left == 0) throw ValueError("freeze", {"'", patterns, "' leaves no parameter to train"});
  for (const auto& p : matched) p->frozen = true;
  return frozen;
}

}  // namespace eigenformer

#if EIGENFORMER_DEFINITIONS

namespace eigenformer {
namespace detail {

EIGENFORMER_FUNCTION std::size_t pattern_distance(std::string_view pattern, std::string_view name) {
  std::vector<std::size_t> row(name.size() + 1), next(name.size() + 1);
  for (std::size_t n = 0; n <= name.size(); ++n) row[n] = n;
  for (const char c : pattern) {
    next[0] = row[0] + (c == '*' ? 0 : 1);
    for (std::size_t n = 1; n <= name.size(); ++n) {
      next[n] =
          c == '*'
              ? std::min(row[n], next[n - 1])
              : std::min({row[n] + 1, next[n - 1] + 1, row[n - 1] + (c == '?' || c == name[n - 1] ? 0 : 1)});
    }
    std::swap(row, next);
  }
  return row.back();
}

}  // namespace detail
}  // namespace eigenformer

#endif
