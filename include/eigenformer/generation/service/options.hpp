#pragma once

#include <string>

#include "eigenformer/core/base/config.hpp"
#include "eigenformer/core/base/error.hpp"
#include "eigenformer/nn/options/field.hpp"

namespace eigenformer {

/// How a Translator shares its model between requests. How large a batch is at most says the `batching` of
/// the TextTranslator's options.
struct TranslatorOptions {
  index_t queue_requests = 1024;  ///< requests that wait at most; one more is refused
  index_t queue_tokens = 262144;  ///< source tokens that wait at most
  /// How long the first request waits for others to be translated with, in seconds. With 0 a batch is what
  /// arrived while the batch before it was at work.
  double window = 0;
  index_t workers = 1;  ///< batches that are translated at once, each by a thread
  /// Threads of each worker's products; 0: those of the Runtime, which all workers share. With 1 and as many
  /// workers as cores, no thread waits within a product; with one worker, a request has all threads.
  index_t worker_threads = 0;

  static void fields(auto& self, auto&& visit) {
    visit(OptionField{"queue_requests", "maximum waiting requests", Allowed::positive}, self.queue_requests);
    visit(OptionField{"queue_tokens", "maximum source tokens in waiting requests", Allowed::positive},
          self.queue_tokens);
    visit(OptionField{"window", "seconds that a request waits for others to join its batch",
                      Allowed::not_negative},
          self.window);
    visit(OptionField{"workers", "batches translated at the same time", Allowed::positive}, self.workers);
    visit(OptionField{"worker_threads", "threads per worker; 0: all workers share the threads of the process",
                      Allowed::not_negative},
          self.worker_threads);
  }

  /// Throws ValueError that names an impossible field.
  void validate() const {
    validate_fields("translator", *this);
    if (window > 60) {
      throw ValueError("translator", "window is " + std::to_string(window) + " seconds, must be at most 60");
    }
  }
};

}  // namespace eigenformer
