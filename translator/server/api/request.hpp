#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "eigenformer/core/base/config.hpp"
#include "translator/server/api/multipart.hpp"
#include "translator/server/http/message.hpp"
#include "translator/server/http/options.hpp"
#include "translator/server/models/backend.hpp"

namespace eigenformer::detail {

/// Parses a form (application/x-www-form-urlencoded): the decoded values of each name, in their order. UTF-8
/// is not checked. Throws HttpError 400 for an invalid percent encoding and for more than `most` values.
std::map<std::string, std::vector<std::string>> parse_form(std::string_view body, std::size_t most = 1000);

/// The parameters of a request to LibreTranslate's API, sent as JSON or as a form. All texts are UTF-8.
class ApiParameters {
 public:
  /// Parses a request's body by its content type. Throws HttpError: 400 for an invalid body, one with two
  /// files, and one with many more fields than the options allow texts, 415 for a content type other than
  /// application/json, application/x-www-form-urlencoded and multipart/form-data.
  ApiParameters(const HttpRequest& request, const ServerOptions& options);

  /// The parameter `file` of a form in multipart/form-data. Throws HttpError 400 when there is none.
  const FormPart& file() const;

  /// A parameter that is a text; `otherwise` when it is absent or null. Throws HttpError 400 for another
  /// type.
  std::string text(const char* name, const std::string& otherwise = "") const;
  /// A parameter that is a short name, empty when it is absent or null. Throws HttpError 400 for one with
  /// more than 256 bytes, which messages would repeat, and for another type.
  std::string name(const char* key) const;
  /// The same; throws HttpError 400 when it is absent or empty, too.
  std::string required_name(const char* key) const;

  /// A parameter that is true or false, also as text or as 1 or 0; false when it is absent or null. Throws
  /// HttpError 400 for another value.
  bool flag(const char* name) const;

  /// A parameter that is a whole number from 0 to `most`; 0 when it is absent or null. Throws HttpError: 400
  /// for another value, 422 for a number out of range.
  index_t number(const char* name, index_t most) const;

  /// The texts of the parameter q, and whether it is a list. Throws HttpError: 400 when it is absent, empty,
  /// or neither a text nor a list of texts, 422 for more or longer texts than the options allow.
  std::pair<std::vector<std::string>, bool> texts(const ServerOptions& options) const;

  /// Throws HttpError 422 for longer texts than the options allow.
  static void require_lengths(const std::vector<std::string>& texts, const ServerOptions& options);

 private:
  // Adds a value of a form; several of one name are a list.
  void add(const std::string& name, const std::string& value);

  static HttpError invalid(const std::string& name, const std::string& what);
  static HttpError missing(const std::string& name);

  nlohmann::json values_ = nlohmann::json::object();
  std::optional<FormPart> file_;
};

/// A request to /translate or /translate_file.
struct ApiTranslation {
  std::string source,    ///< language code, or "auto"
      target;            ///< language code
  TranslationTask task;  ///< texts, format and options
  bool list = false;     ///< whether q was a list; if so, the answer has lists
  bool stream = false;   ///< whether the answer is a stream of events
  /// Makes the answer of /translate_file from the translation; empty: the answer is that of /translate.
  std::function<nlohmann::ordered_json(std::string)> file_answer{};
};

/// Reads the parameters of /translate. Throws HttpError 400 for a missing or invalid parameter, 422 for one
/// beyond the limits of the options.
ApiTranslation api_translation(const ApiParameters& parameters, const ServerOptions& options);

/// The endings of the files that /translate_file translates: plain text, and HTML.
inline constexpr std::array file_endings = {".txt", ".html", ".htm"};

/// Reads the parameters of /translate_file; file_answer stays empty. Throws as api_translation() does, and
/// HttpError 400 for a file whose name does not end as one of file_endings, or which is not UTF-8.
ApiTranslation api_file_translation(const ApiParameters& parameters, const ServerOptions& options);

}  // namespace eigenformer::detail
