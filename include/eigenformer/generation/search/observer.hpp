#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>

#include "eigenformer/generation/search/hypothesis.hpp"

namespace eigenformer {

/// What a search has of an input after a step.
struct SearchProgress {
  std::size_t input;  ///< the place of the input in the list that was given
  index_t step;       ///< the tokens of each text that grows, or its last one
  index_t group;      ///< of a diverse beam: of which group this tells; else 0
  /// The texts that grow, the likeliest first; their scores are not set. Of sampling, all texts of the input,
  /// in their order, those that have ended included.
  std::span<const Hypothesis> growing;
  std::span<const Hypothesis> finished;  ///< those that have ended, the best score first; of sampling none
};

/// Watches searches while they work, and may end them.
class SearchObserver {
 public:
  virtual ~SearchObserver() = default;
  /// Called after each step, for each input (and group of a diverse beam) that is still searched for, on
  /// threads that search, at once for different inputs. false ends the search of the input (or group): its
  /// result is what it has, best first, ended or not. Results of the others do not change. What it throws
  /// ends the search of all.
  virtual bool operator()(const SearchProgress& progress) const = 0;
};

namespace detail {

template <class F>
class FunctionObserver final : public SearchObserver {
 public:
  explicit FunctionObserver(F f) : f_(std::move(f)) {}
  bool operator()(const SearchProgress& progress) const override { return f_(progress); }

 private:
  F f_;
};

}  // namespace detail

/// An observer from a function of (const SearchProgress&) that returns whether to go on.
template <class F>
std::shared_ptr<const SearchObserver> search_observer(F f) {
  return std::make_shared<detail::FunctionObserver<F>>(std::move(f));
}

}  // namespace eigenformer
