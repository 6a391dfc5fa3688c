#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/nn/module/module.hpp"

namespace eigenformer {

/// Parameters that have a learning rate or a weight decay of their own.
///
/// A parameter belongs to the first group whose pattern matches one of its names (a tied one has several).
/// Those that no group matches have the optimizer's rate. Weight decay that no group states is the
/// optimizer's for tensors of rank 2 and above, and 0 for all others: norms and biases do not decay.
///
///     ef::AdamW<float> optimizer(ef::parameters(model),
///                                {.weight_decay = 0.1, .groups = {{.pattern = "encoder.*", .rate = 0.1},
///                                                                 {.pattern = "*.embedding.weight",
///                                                                 .weight_decay = 0}}});
///
/// PyTorch's optimizers decay all parameters: `.groups = {{.pattern = "*", .weight_decay = 0.1}}`.
struct ParameterGroup {
  std::string pattern;  ///< of whole dotted names: '*' stands for any text, '?' for one character
  double rate = 1;      ///< times the learning rate of each step
  std::optional<double> weight_decay{};  ///< left out: see above
};
using ParameterGroups = std::vector<ParameterGroup>;

/// Whether a whole name fits a pattern, in which '*' stands for any text, dots included, and '?' for one
/// character.
[[nodiscard]] inline bool matches_pattern(std::string_view pattern, std::string_view name) {
  std::size_t p = 0, n = 0, star = std::string_view::npos, resume = 0;
  while (n < name.size()) {
    if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      resume = n;
    } else if (p < pattern.size() && (pattern[p] == '?' || pattern[p] == name[n])) {
      ++p;
      ++n;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      n = ++resume;
    } else {
      return false;
    }
  }
  return pattern.find_first_not_of('*', p) == std::string_view::npos;
}

namespace detail {

// What an optimizer does with one parameter.
struct StepRule {
  double rate = 1;  // times the learning rate
  double weight_decay = 0;
};

// The edits that make a name fit a pattern; what '*' stands for costs nothing.
inline std::size_t pattern_distance(std::string_view pattern, std::string_view name) {
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

// "'a.weight', 'b.weight', 'c.bias'": the names nearest to a pattern.
template <class T>
std::string nearest_names(const std::string& pattern, const std::vector<ParameterHandle<T>>& parameters) {
  std::vector<std::pair<std::size_t, std::string>> names;
  for (const auto& p : parameters) {
    names.emplace_back(pattern_distance(pattern, p->name), p->name);
    for (const std::string& alias : p->aliases) names.emplace_back(pattern_distance(pattern, alias), alias);
  }
  std::stable_sort(names.begin(), names.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::string list;
  for (std::size_t i = 0; i < std::min<std::size_t>(3, names.size()); ++i)
    list += (i == 0 ? "'" : ", '") + names[i].second + "'";
  return list;
}

template <class T>
bool matches_group(const ParameterGroup& group, const ParameterState<T>& p) {
  return matches_pattern(group.pattern, p.name) ||
         std::any_of(p.aliases.begin(), p.aliases.end(),
                     [&](const std::string& alias) { return matches_pattern(group.pattern, alias); });
}

// One rule for each parameter. Throws ValueError, as `op`, for impossible rates and for a group that holds
// nothing.
template <class T>
std::vector<StepRule> step_rules(const char* op, const std::vector<ParameterHandle<T>>& parameters,
                                 const ParameterGroups& groups, double weight_decay) {
  std::vector<std::size_t> matched(groups.size()), held(groups.size());
  std::vector<StepRule> rules;
  for (const ParameterGroup& group : groups) {
    const auto require = [&](double value, const char* field) {
      if (value >= 0 && std::isfinite(value)) return;
      throw ValueError(op, std::string(field) + " of group '" + group.pattern + "' is " +
                               std::to_string(value) + ", must be finite and not negative");
    };
    require(group.rate, "rate");
    if (group.weight_decay) require(*group.weight_decay, "weight_decay");
  }
  for (const auto& p : parameters) {
    StepRule rule{1, p->value.rank() < 2 ? 0.0 : weight_decay};
    bool found = false;
    for (std::size_t g = 0; g < groups.size(); ++g) {
      if (!matches_group(groups[g], *p)) continue;
      ++matched[g];
      if (found) continue;
      found = true;
      ++held[g];
      rule.rate = groups[g].rate;
      if (groups[g].weight_decay) rule.weight_decay = *groups[g].weight_decay;
    }
    rules.push_back(rule);
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (held[g] > 0) continue;
    const std::string& pattern = groups[g].pattern;
    throw ValueError(
        op, matched[g] > 0
                ? "group '" + pattern + "' is empty: groups before it hold all parameters that it matches"
                : "group '" + pattern + "' matches no parameter; the nearest names are " +
                      nearest_names(pattern, parameters));
  }
  return rules;
}

}  // namespace detail

}  // namespace eigenformer
