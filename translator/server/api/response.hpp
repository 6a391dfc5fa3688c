#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "translator/server/api/detect.hpp"
#include "translator/server/http/message.hpp"
#include "translator/server/models/backend.hpp"

namespace eigenformer::detail {

/// JSON as one line of text. Bytes that are not UTF-8 become U+FFFD.
inline std::string json_text(const nlohmann::ordered_json& json) {
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

/// An answer with JSON and a line end as its body.
inline HttpAnswer json_answer(const nlohmann::ordered_json& json, unsigned status = 200) {
  return {.status = status, .body = json_text(json) + "\n"};
}

/// The answer for an error in LibreTranslate's format, {"error": "..."}, with the error's status and headers.
inline HttpAnswer api_error(const HttpError& error) {
  HttpAnswer answer = json_answer({{"error", error.message()}}, error.status());
  answer.headers = error.headers();
  return answer;
}

/// A detected language in LibreTranslate's format: {"confidence": 92.5, "language": "en"}.
inline nlohmann::ordered_json detection_json(const DetectedLanguage& detected) {
  return {{"confidence", detected.confidence}, {"language", detected.code}};
}

/// The words of a translation with their confidences and alignment.
inline nlohmann::ordered_json details_json(const TranslatedText& text) {
  auto target = nlohmann::ordered_json::array();
  for (const TranslatedWord& word : text.words) {
    nlohmann::ordered_json object = {{"text", word.text}};
    object["confidence"] =
        word.confidence < 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(word.confidence);
    object["source"] = word.sources;
    target.push_back(std::move(object));
  }
  return {{"source", text.source_words}, {"target", std::move(target)}};
}

/// The answer of /translate. texts: a result for each text of the task, at least one unless list. list:
/// whether q was a list; then each field is a list, too. detected: the source language if it was "auto".
inline nlohmann::ordered_json translation_json(const std::vector<TranslatedText>& texts, bool list,
                                               const TranslationTask& task,
                                               const std::optional<DetectedLanguage>& detected) {
  using json = nlohmann::ordered_json;
  json answer = json::object();
  const auto add = [&](const char* name, auto&& of_text) {
    json all = json::array();
    for (const TranslatedText& text : texts) all.push_back(of_text(text));
    answer[name] = list ? std::move(all) : std::move(all.at(0));
  };
  if (task.alternatives > 0)
    add("alternatives", [](const TranslatedText& text) { return json(text.alternatives); });
  if (detected) add("detectedLanguage", [&](const TranslatedText&) { return detection_json(*detected); });
  add("translatedText", [](const TranslatedText& text) { return json(text.text); });
  if (task.details) add("details", [](const TranslatedText& text) { return details_json(text); });
  return answer;
}

}  // namespace eigenformer::detail
