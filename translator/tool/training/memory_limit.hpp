#pragma once

#include <memory>
#include <string>
#include <utility>

#include "terminal/terminal_progress.hpp"
#include "training/train_command.hpp"
#include "translator/training/memory_plan.hpp"

namespace translator {

/// Adds --memory-limit.
inline void add_memory_limit(CLI::App& command, TrainCommand& train) {
  command
      .add_option(
          "--memory-limit", train.memory_limit,
          "memory limit of the process, such as 800M or 2G: plans a model that fits, splits batches into "
          "as many parts as needed, and then checkpoints activations; the tokens per update stay the "
          "same")
      ->check(CLI::Validator(
          [](std::string& text) {
            try {
              (void)ef::bytes_of(text);
            } catch (const ef::ValueError&) {
              return "is '" + text + "', expected an amount of memory such as 800M or 2G";
            }
            return std::string();
          },
          ""));
}

/// Chooses batches, accumulation and checkpoints that keep the process within --memory-limit, if it is given,
/// and reports them; ranks agree on one choice. A resumed training keeps its batches. Throws ValueError if
/// the limit is too low.
template <class Model, class Corpus>
void limit_memory(const TrainCommand& command, Model& model, const Corpus& corpus,
                  ef::TrainingOptions& options, TerminalProgress& progress,
                  std::shared_ptr<const ef::Teacher<float>> teacher = nullptr) {
  if (command.memory_limit.empty()) return;
  ef::MemoryPlan plan = ef::plan_memory(model, corpus, options, ef::bytes_of(command.memory_limit),
                                        command.resume, std::move(teacher));
  if (const auto& ranks = options.loop.communicator; ranks != nullptr)
    plan = ef::MemoryPlan::of_all(ranks->all(plan));
  plan.apply(options);
  progress.say("memory: " + plan.str());
}

}  // namespace translator
