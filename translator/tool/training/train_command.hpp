#pragma once

#include <memory>
#include <string>

#include "eigenformer/train/trainer.hpp"
#include "options/train_settings.hpp"

namespace translator {

using Trainer = ef::Trainer<ef::Seq2SeqTransformer<float>>;

/// The command line of `translator train`.
struct TrainCommand {
  std::unique_ptr<TrainFlags> flags;
  std::string memory_limit;  // as bytes_of() reads it; empty: none
  std::string folder, init_from, adapter_names;
  ef::index_t threads = 0;
  bool resume = false;
  bool overwrite = false;
  bool mpi = false;
  bool plan = false;  // print the plan and end
};

}  // namespace translator
