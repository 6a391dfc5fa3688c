#pragma once

#include "eigenformer/nn/models/seq2seq_options.hpp"

namespace translator {

namespace ef = eigenformer;

/// The default model of `translator train`, for 20,000 to 200,000 sentence pairs on a desktop.
inline ef::Seq2SeqOptions default_model() {
  return {.layer = {.d_model = 256, .dim_feedforward = 1024},
          .encoder = {.num_layers = 3},
          .decoder = {.num_layers = 3},
          .tying = ef::Tying::all};
}

}  // namespace translator
