#pragma once

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// How a Translator shares its model between requests. The size of batches is set by
/// TextTranslatorOptions::batching.
struct TranslatorOptions {
  index_t queue_requests = 1024;  ///< maximum waiting requests; further ones are refused
  index_t queue_tokens = 262144;  ///< maximum waiting source tokens, where a blank line counts as 1; a
                                  ///< request with more is refused
  /// Seconds that the first request waits for others to share its batch, at most 60. 0: a batch holds what
  /// waits when a worker is free.
  double window = 0;
  /// Batches translated at once, each by its own thread; 0: one for each thread of the Runtime, or as many as
  /// the system allows. They divide waiting lines among them, at least 4 for a batch, and share the threads
  /// that the Runtime has when the Translator is made, also with other Translators: a batch that runs alone
  /// uses all of them, so that one request is answered fast, and of many batches each has a part, so that
  /// threads seldom wait for each other.
  index_t workers = 0;

  /// Visits the fields with their names and descriptions, for files and command lines.
  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"queue_requests", "maximum waiting requests", Allowed::positive}, self.queue_requests);
    visit(OptionField{"queue_tokens", "maximum source tokens in waiting requests", Allowed::positive},
          self.queue_tokens);
    visit(OptionField{"window", "seconds that a request waits for others to join its batch",
                      Allowed::not_negative},
          self.window);
    visit(OptionField{"workers", "batches translated at the same time; 0: one for each thread",
                      Allowed::not_negative},
          self.workers);
  }

  /// Throws ValueError for an invalid field and names it.
  void validate() const {
    validate_fields("translator", *this);
    if (window > 60) throw ValueError("translator", {"window is ", window, " seconds, must be at most 60"});
  }
};

}  // namespace eigenformer
