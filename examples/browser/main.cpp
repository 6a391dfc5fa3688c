// The engine of a page that translates without a server: JavaScript calls the functions at the end. The page
// holds the model folder, which is /model in the engine's file system.
#include <emscripten.h>

#include <exception>
#include <string>

#include "eigenformer/io/models/translation_model.hpp"
#include "eigenformer/search/text/text_translator.hpp"
namespace ef = eigenformer;

namespace {

using Model = ef::Seq2SeqTransformer<float>;

struct Engine {
  ef::PackedModel<Model> model = ef::load_packed_folder("/model");
  ef::TextTranslator<Model> translator{model.loaded, model.context()};
};

std::string translation, problem;

}  // namespace

extern "C" {

/// The translation of a sentence in UTF-8, until the next call; null when there is none, and why_not() says
/// why. The first call loads the model.
EMSCRIPTEN_KEEPALIVE const char* translate(const char* sentence) {
  try {
    problem.clear();
    static const Engine engine;
    translation = engine.translator.translate(sentence).text;
    return translation.c_str();
  } catch (const std::exception& error) {
    problem = error.what();
    return nullptr;
  }
}

/// Why the last translate() returned null; empty when it did not.
EMSCRIPTEN_KEEPALIVE const char* why_not() { return problem.c_str(); }
}
