#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "confidence_file.hpp"
#include "eigenformer/io/models/translation_model.hpp"
#include "eigenformer/search/decoding/ensemble.hpp"
#include "eigenformer/search/text/conventions.hpp"
#include "eigenformer/search/text/text_translator.hpp"
#include "translator/serving/adapted_model.hpp"

// Search and sampling are compiled once, in decoding_model.cpp, instead of in every command.
namespace eigenformer {
extern template class TextTranslator<Ensemble<Seq2SeqTransformer<float>>>;
}  // namespace eigenformer

namespace translator {

namespace ef = eigenformer;

using Model = ef::Seq2SeqTransformer<float>;

/// Whether two models use the same ids: equal vocabularies and equal conventions.
inline bool same_text(const ef::TokenizerPair& a, const ef::TextConventions& s, const ef::TokenizerPair& b,
                      const ef::TextConventions& t) {
  const auto same = [](const ef::Tokenizer& x, const ef::Tokenizer& y) {
    if (x.kind() != y.kind() || x.vocabulary_size() != y.vocabulary_size()) return false;
    for (std::int32_t id = 0; id < x.vocabulary_size(); ++id) {
      if (x.token(id) != y.token(id)) return false;
    }
    return true;
  };
  return s.source_text == t.source_text && s.source_prefix == t.source_prefix &&
         s.source_suffix == t.source_suffix && s.begin_id == t.begin_id &&
         s.target_prefix == t.target_prefix && s.end_id == t.end_id && same(*a.source, *b.source) &&
         same(*a.target, *b.target);
}

/// Folders of adapters by name.
using AdapterPlaces = std::map<std::string, std::filesystem::path>;

/// A model for decoding: weights packed in the format of its folder, without a second copy.
struct DecodingModel {
  ef::AdaptedModel adapted;
  ef::TranslationModel<float>& loaded;
  ef::Context<float> ctx;  ///< with the packed weights

  /// adapter: folder of an adapter to merge into the weights; empty: none. target_language: for a
  /// multilingual model. adapters: by name, folders of those that are not merged, instead of `adapter`.
  /// Throws as load_packed_folder or load_adapted_folder and with_target_language do.
  DecodingModel(const std::string& folder, const std::string& adapter, const std::string& target_language,
                const AdapterPlaces& adapters)
      : adapted(load(folder, adapter, adapters)),
        loaded(adapted.packed.loaded),
        ctx(adapted.packed.context()) {
    ef::detail::require_tokenizers(folder, loaded.tokenizers);
    loaded.description.text = ef::with_target_language(loaded.description.text, target_language);
  }
  DecodingModel(const DecodingModel&) = delete;
  DecodingModel& operator=(const DecodingModel&) = delete;

 private:
  static ef::AdaptedModel load(const std::string& folder, const std::string& adapter,
                               const AdapterPlaces& adapters) {
    if (!adapters.empty()) return ef::load_adapted_folder(folder, adapters);
    if (!adapter.empty()) return {ef::load_packed_folder(folder, adapter), {}};
    return {ef::load_packed_folder(folder), {}};
  }
};

/// The models of one or more folders, which translate as an ensemble.
class DecodingModels {
 public:
  /// Throws as DecodingModel does, and ValueError if the models' vocabularies or conventions differ. adapter,
  /// adapters: for a single model, as those of DecodingModel; each request may choose one of the latter.
  explicit DecodingModels(const std::vector<std::string>& folders, const std::string& adapter = {},
                          const std::string& target_language = {}, const AdapterPlaces& adapters = {})
      : models_(load(folders, adapter, target_language, adapters)), ensemble_(members()) {
    // Fitted for a single model: the confidences of an ensemble, or of a model with an adapter, differ.
    if (folders.size() == 1) confidence_ = load_confidence(adapter.empty() ? folders[0] : adapter);
    for (std::size_t i = 1; i < models_.size(); ++i) {
      if (!same_text(tokenizers(), models_[0]->loaded.description.text, models_[i]->loaded.tokenizers,
                     models_[i]->loaded.description.text)) {
        throw ef::ValueError("ensemble", {"'", folders[0], "' and '", folders[i],
                                          "' have different vocabularies or text conventions, "
                                          "expected the same"});
      }
      // Lines must fit all models.
      const auto& description = models_[i]->loaded.description;
      if (ef::max_source_tokens(description) < ef::max_source_tokens(models_[shortest_]->loaded.description))
        shortest_ = i;
    }
    for (const auto& [name, set] : first().adapted.adapters) {
      adapted_.emplace(name,
                       Adapted{ef::Ensemble<Model>({{first().loaded.model, first().ctx.with_adapters(set)}}),
                               load_confidence(adapters.at(name).string())});
    }
  }

  /// The model with one of the named adapters, and its confidence.
  struct Adapted {
    ef::Ensemble<Model> ensemble;
    ef::ConfidenceScale confidence;
  };

  const DecodingModel& first() const { return *models_.front(); }
  const std::map<std::string, Adapted>& adapted() const { return adapted_; }
  const std::vector<std::unique_ptr<DecodingModel>>& all() const { return models_; }
  const ef::TokenizerPair& tokenizers() const { return first().loaded.tokenizers; }
  /// The limit of the model with the fewest positions.
  const ef::ModelDescription& description() const { return models_[shortest_]->loaded.description; }
  const ef::Ensemble<Model>& ensemble() const { return ensemble_; }
  const ef::ConfidenceScale& confidence() const { return confidence_; }

 private:
  static std::vector<std::unique_ptr<DecodingModel>> load(const std::vector<std::string>& folders,
                                                          const std::string& adapter,
                                                          const std::string& target_language,
                                                          const AdapterPlaces& adapters) {
    if (!adapter.empty() && folders.size() > 1)
      throw ef::ValueError("adapter",
                           "--adapter works with one model only, but --model is given several times");
    std::vector<std::unique_ptr<DecodingModel>> models;
    for (const std::string& folder : folders)
      models.push_back(std::make_unique<DecodingModel>(folder, adapter, target_language, adapters));
    return models;
  }
  std::vector<ef::Ensemble<Model>::Member> members() const {
    std::vector<ef::Ensemble<Model>::Member> members;
    for (const auto& model : models_) members.push_back({model->loaded.model, model->ctx});
    return members;
  }

  std::vector<std::unique_ptr<DecodingModel>> models_;
  ef::Ensemble<Model> ensemble_;
  ef::ConfidenceScale confidence_;
  std::map<std::string, Adapted> adapted_;
  std::size_t shortest_ = 0;
};

using SentenceTranslator = ef::TextTranslator<ef::Ensemble<Model>>;

/// A translator of loaded models.
inline SentenceTranslator sentence_translator(const DecodingModels& models,
                                              ef::TextTranslatorOptions options) {
  return {models.ensemble(), models.tokenizers(), models.description(), std::move(options)};
}

}  // namespace translator
