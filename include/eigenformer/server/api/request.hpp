#pragma once

#include <algorithm>
#include <cctype>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <system_error>
#include <tuple>
#include <utility>
#include <vector>

#include "eigenformer/data/text/utf8.hpp"
#include "eigenformer/io/safetensors/json_text.hpp"
#include "eigenformer/server/api/form.hpp"
#include "eigenformer/server/models/backend.hpp"
#include "eigenformer/server/options.hpp"

namespace eigenformer {

/// The parameters of a request to LibreTranslate's API, sent as JSON or as a form. All texts are UTF-8.
class ApiParameters {
 public:
  /// Parses a request's body by its content type. Throws HttpError: 400 for an invalid body, 415 for a
  /// content type other than application/json and application/x-www-form-urlencoded.
  explicit ApiParameters(const HttpRequest& request) {
    std::string type = request.content_type.substr(0, request.content_type.find(';'));
    while (!type.empty() && type.back() == ' ') type.pop_back();
    std::transform(type.begin(), type.end(), type.begin(), [](unsigned char c) { return std::tolower(c); });
    if (type == "application/json") {
      values_ = detail::parse_json(request.body);
      if (!values_.is_object()) throw HttpError(400, "Invalid request: the body is not a JSON object");
    } else if (type == "application/x-www-form-urlencoded") {
      if (find_invalid_utf8(request.body)) throw HttpError(400, "Invalid request: the form is not UTF-8");
      values_ = nlohmann::json::object();
      for (const auto& [name, values] : parse_form(request.body)) {
        for (const std::string& value : values) {
          if (find_invalid_utf8(value)) throw HttpError(400, "Invalid request: the form is not UTF-8");
        }
        if (values.size() == 1) {
          values_[name] = values.front();
        } else {
          values_[name] = values;
        }
      }
    } else {
      throw HttpError(415,
                      "Invalid request: Content-Type must be application/json or "
                      "application/x-www-form-urlencoded");
    }
  }

  /// A parameter that is a text; `otherwise` when it is absent or null. Throws HttpError 400 for another
  /// type.
  std::string text(const char* name, const std::string& otherwise = "") const {
    const auto found = values_.find(name);
    if (found == values_.end() || found->is_null()) return otherwise;
    if (!found->is_string()) throw invalid(name, "must be a text");
    return found->get<std::string>();
  }
  /// A parameter that is a text. Throws HttpError 400 when it is absent, empty or of another type.
  std::string required_text(const char* name) const {
    std::string value = text(name);
    if (value.empty()) throw missing(name);
    return value;
  }

  /// A parameter that is true or false, also as text or as 1 or 0; false when it is absent or null. Throws
  /// HttpError 400 for another value.
  bool flag(const char* name) const {
    const auto found = values_.find(name);
    if (found == values_.end() || found->is_null()) return false;
    if (found->is_boolean()) return found->get<bool>();
    if (*found == "true" || *found == "1" || *found == 1) return true;
    if (*found == "false" || *found == "0" || *found == 0) return false;
    throw invalid(name, "must be true or false");
  }

  /// A parameter that is a whole number from 0 to `most`; 0 when it is absent or null. Throws HttpError: 400
  /// for another value, 422 for a number out of range.
  index_t number(const char* name, index_t most) const {
    const auto found = values_.find(name);
    if (found == values_.end() || found->is_null()) return 0;
    index_t value = -1;
    bool whole = false, too_large = false;
    if (found->is_number_unsigned()) {
      const auto given = found->get<std::uint64_t>();
      whole = true;
      too_large = given > static_cast<std::uint64_t>(most);
      if (!too_large) value = static_cast<index_t>(given);
    } else if (found->is_number_integer()) {
      value = found->get<std::int64_t>();
      whole = true;
    } else if (found->is_string()) {
      const std::string given = found->get<std::string>();
      const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), value);
      too_large = error == std::errc::result_out_of_range;
      whole = !given.empty() && end == given.data() + given.size();
    }
    if (!whole) throw invalid(name, "must be a whole number");
    if (too_large || value < 0 || value > most)
      throw HttpError(422, std::string(name) + " must be from 0 to " + std::to_string(most));
    return value;
  }

  /// The texts of the parameter q, and whether it is a list. Throws HttpError: 400 when it is absent or
  /// neither a text nor a list of texts, 422 for more or longer texts than the options allow.
  std::pair<std::vector<std::string>, bool> texts(const ServerOptions& options) const {
    const auto found = values_.find("q");
    if (found == values_.end() || found->is_null()) throw missing("q");
    std::vector<std::string> texts;
    if (found->is_string()) {
      texts.push_back(found->get<std::string>());
    } else if (found->is_array()) {
      if (static_cast<index_t>(found->size()) > options.max_texts)
        throw HttpError(422, "q has " + std::to_string(found->size()) + " texts, at most " +
                                 std::to_string(options.max_texts) + " are allowed");
      for (const auto& text : *found) {
        if (!text.is_string()) throw invalid("q", "must be a text or a list of texts");
        texts.push_back(text.get<std::string>());
      }
    } else {
      throw invalid("q", "must be a text or a list of texts");
    }
    require_lengths(texts, options);
    return {std::move(texts), found->is_array()};
  }

 private:
  static HttpError invalid(const std::string& name, const std::string& what) {
    return HttpError(400, "Invalid request: " + name + " " + what);
  }
  // The same message as LibreTranslate's.
  static HttpError missing(const std::string& name) {
    return HttpError(400, "Invalid request: missing " + name + " parameter");
  }

  static void require_lengths(const std::vector<std::string>& texts, const ServerOptions& options) {
    index_t all = 0, line = 0, longest = 0;
    for (const std::string& text : texts) {
      line = 0;
      for_each_code_point(text, [&](char32_t c, std::string_view) {
        ++all;
        line = c == U'\n' ? 0 : line + 1;
        longest = std::max(longest, line);
      });
    }
    if (all > options.max_characters) {
      throw HttpError(422, "the request has " + std::to_string(all) + " characters, at most " +
                               std::to_string(options.max_characters) + " are allowed");
    }
    if (longest > options.max_line_characters) {
      throw HttpError(422, "a line has " + std::to_string(longest) + " characters, at most " +
                               std::to_string(options.max_line_characters) + " are allowed");
    }
  }

  nlohmann::json values_;
};

/// A request to /translate.
struct ApiTranslation {
  std::string source,    ///< language code, or "auto"
      target;            ///< language code
  TranslationTask task;  ///< texts, format and options
  bool list = false;     ///< whether q was a list; if so, the answer has lists
  bool stream = false;   ///< whether the answer is a stream of events
};

/// Reads the parameters of /translate. Throws HttpError 400 for a missing or invalid parameter, 422 for one
/// beyond the limits of the options.
inline ApiTranslation api_translation(const ApiParameters& parameters, const ServerOptions& options) {
  ApiTranslation wanted;
  std::tie(wanted.task.texts, wanted.list) = parameters.texts(options);
  wanted.source = parameters.required_text("source");
  wanted.target = parameters.required_text("target");
  const std::string format = parameters.text("format", "text");
  if (format != "text" && format != "html")
    throw HttpError(400, "Invalid request: format must be text or html");
  wanted.task.html = format == "html";
  wanted.task.alternatives = parameters.number("alternatives", options.max_alternatives);
  wanted.task.details = parameters.flag("details");
  wanted.task.adapter = parameters.text("adapter");
  wanted.stream = parameters.flag("stream");
  return wanted;
}

}  // namespace eigenformer
