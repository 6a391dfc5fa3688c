#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "translator/server/api/detect.hpp"
#include "translator/server/http/message.hpp"
#include "translator/server/models/backend.hpp"

namespace eigenformer::detail {

/// JSON as one line of text. Bytes that are not UTF-8 become U+FFFD.
std::string json_text(const nlohmann::ordered_json& json);

/// An answer with JSON and a line end as its body.
HttpAnswer json_answer(const nlohmann::ordered_json& json, unsigned status = 200);

/// The answer for an error in LibreTranslate's format, {"error": "..."}, with the error's status and headers.
HttpAnswer api_error(const HttpError& error);

/// A detected language in LibreTranslate's format: {"confidence": 92.5, "language": "en"}.
nlohmann::ordered_json detection_json(const DetectedLanguage& detected);

/// The answer of /translate. texts: a result for each text of the task, at least one unless list. list:
/// whether q was a list; then each field is a list, too. detected: the source language if it was "auto".
nlohmann::ordered_json translation_json(const std::vector<TranslatedText>& texts, bool list,
                                        const TranslationTask& task,
                                        const std::optional<DetectedLanguage>& detected);

}  // namespace eigenformer::detail
