#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "eigenformer/search/beams/hypothesis.hpp"
#include "eigenformer/search/beams/options.hpp"
#include "eigenformer/search/decoding/next_tokens.hpp"

namespace eigenformer::detail {

/// All ids in the constraints of some inputs, with duplicates.
EIGENFORMER_FUNCTION std::vector<std::int32_t> constraint_ids(const SearchOptions& options,
                                                              std::span<const std::size_t> places);

/// Beam search (Wu et al. 2016, section 7) for a batch. inputs: the prompts' inputs as indices into the
/// caller's list; limits: maximum target tokens of each after prefix_ids, empty: as max_length has it.
/// end_score: see EndScore. Returns options.num_hypotheses texts for each prompt, or fewer if fewer are
/// found, the best first. A text ends where every next token is forbidden; it ranks as one that max_length
/// cuts off, but before those.
template <class T>
std::vector<std::vector<Hypothesis>> search_beams(NextTokens<T>& model, const Prompts& prompts,
                                                  std::span<const std::size_t> inputs,
                                                  std::span<const index_t> limits,
                                                  const SearchOptions& options, const EndScore& end_score);

}  // namespace eigenformer::detail

#if EIGENFORMER_DEFINITIONS
#include "eigenformer/search/beams/beam_search-inl.hpp"
#endif
