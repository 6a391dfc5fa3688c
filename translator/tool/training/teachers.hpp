#pragma once

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "eigenformer/train/objectives/loss.hpp"
#include "model/decoding_model.hpp"
#include "translator/preparing/prepare_options.hpp"

namespace translator {

/// The folders of a comma-separated list; none of an empty one.
inline std::vector<std::string> teacher_folders(const std::string& list) {
  std::vector<std::string> folders = ef::detail::parts_of(list, ',');
  if (std::find(folders.begin(), folders.end(), "") == folders.end()) return folders;
  throw ef::ValueError(
      "train", {"--teacher '", list, "' has an empty name, expected model folders separated by commas"});
}

/// The teachers of a training.
struct Teachers {
  std::unique_ptr<DecodingModels> models;
  std::shared_ptr<ef::Teacher<float>> teacher;

  /// Throws as DecodingModels does, and ValueError for a model whose decoder sees the tokens that it has to
  /// predict.
  explicit Teachers(const std::vector<std::string>& folders)
      : models(std::make_unique<DecodingModels>(folders)), teacher(std::make_shared<ef::Teacher<float>>()) {
    for (std::size_t k = 0; k < folders.size(); ++k) {
      const DecodingModel& model = *models->all()[k];
      if (!model.loaded.model.options.causal) {
        throw ef::ValueError("train", {"the teacher in '", folders[k],
                                       "' has a decoder that is not causal, which cannot be a teacher"});
      }
      teacher->add(model.loaded.model, model.ctx);
    }
  }

  /// Throws ValueError unless the model to resume or start from has the teachers' ids.
  void require_same_text(const ef::TokenizerPair& tokenizers, const ef::TextConventions& text) const {
    if (same_text(models->tokenizers(), models->first().loaded.description.text, tokenizers, text)) return;
    throw ef::ValueError(
        "train",
        "the teacher and the model to train have different vocabularies or text conventions, expected the "
        "same; without --init-from a new model takes those of the teacher");
  }
};

}  // namespace translator
