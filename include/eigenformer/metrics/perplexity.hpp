#pragma once

#include <cmath>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"

namespace eigenformer {

/// Accumulates perplexity over batches: exp of the mean negative log-likelihood per token. Not thread-safe.
class Perplexity {
 public:
  /// Adds the negative log-likelihood (nats) summed over `tokens` tokens. Throws ValueError when tokens is
  /// negative.
  void add(double negative_log_likelihood, index_t tokens) {
    if (tokens < 0) throw ValueError("perplexity", {tokens, " tokens, must not be negative"});
    sum_ += negative_log_likelihood;
    tokens_ += tokens;
  }

  /// Tokens added so far.
  index_t tokens() const noexcept { return tokens_; }

  /// Mean negative log-likelihood in nats per token. Throws ValueError before the first token.
  double mean_loss() const {
    if (tokens_ == 0) throw ValueError("perplexity", "no token was added, expected at least one");
    return sum_ / static_cast<double>(tokens_);
  }

  /// exp(mean_loss()): 1 for certainty, the vocabulary size for a uniform guess. Throws ValueError before the
  /// first token.
  double value() const { return std::exp(mean_loss()); }

 private:
  double sum_ = 0;
  index_t tokens_ = 0;
};

}  // namespace eigenformer
