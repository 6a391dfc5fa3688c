#include "translator/server/api/request.hpp"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <system_error>
#include <tuple>

#include "eigenformer/data/text/utf8.hpp"
#include "eigenformer/io/safetensors/json_text.hpp"
#include "translator/documents/markup/parsing/entities.hpp"
#include "translator/server/api/files.hpp"

namespace eigenformer::detail {

namespace {

std::string form_decoded(std::string_view text) {
  std::string decoded;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '+') {
      decoded += ' ';
    } else if (text[i] != '%') {
      decoded += text[i];
    } else {
      unsigned byte = 0;
      const char* const digits = text.data() + i + 1;
      if (i + 2 >= text.size() || std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2)
        throw HttpError(400, "Invalid request: the form has a % without two hexadecimal digits");
      decoded += static_cast<char>(byte);
      i += 2;
    }
  }
  return decoded;
}

}  // namespace

std::map<std::string, std::vector<std::string>> parse_form(std::string_view body, std::size_t most) {
  std::map<std::string, std::vector<std::string>> values;
  for (const std::string_view pair : parts_between(body, "&")) {
    if (pair.empty()) continue;
    if (most-- == 0) throw HttpError(400, "Invalid request: the form has too many fields");
    const std::size_t equals = std::min(pair.find('='), pair.size());
    const std::string_view value = equals < pair.size() ? pair.substr(equals + 1) : std::string_view();
    values[form_decoded(pair.substr(0, equals))].push_back(form_decoded(value));
  }
  return values;
}

ApiParameters::ApiParameters(const HttpRequest& request, const ServerOptions& options) {
  const std::string type =
      ascii_lower(trim(std::string_view(request.content_type).substr(0, request.content_type.find(';'))));
  const std::size_t most_fields = static_cast<std::size_t>(options.max_texts) + 32;
  if (type == "application/json") {
    values_ = parse_json(request.body);
    if (!values_.is_object()) throw HttpError(400, "Invalid request: the body is not a JSON object");
  } else if (type == "application/x-www-form-urlencoded") {
    for (const auto& [name, values] : parse_form(request.body, most_fields))
      for (const std::string& value : values) add(name, value);
  } else if (type == "multipart/form-data") {
    for (FormPart& part : parse_multipart(request.body, request.content_type, most_fields)) {
      if (!part.filename) {
        add(part.name, part.content);
      } else if (file_) {
        throw HttpError(400, "Invalid request: the form has two files, expected one");
      } else {
        file_ = std::move(part);
      }
    }
  } else {
    throw HttpError(415,
                    "Invalid request: Content-Type must be application/json, "
                    "application/x-www-form-urlencoded or multipart/form-data");
  }
}

const FormPart& ApiParameters::file() const {
  if (!file_ || file_->name != "file") throw missing("file");
  return *file_;
}

std::string ApiParameters::text(const char* name, const std::string& otherwise) const {
  const auto found = values_.find(name);
  if (found == values_.end() || found->is_null()) return otherwise;
  if (!found->is_string()) throw invalid(name, "must be a text");
  return found->get<std::string>();
}

std::string ApiParameters::name(const char* key) const {
  std::string value = text(key);
  if (value.size() > 256) throw invalid(key, "must have at most 256 bytes");
  return value;
}

std::string ApiParameters::required_name(const char* key) const {
  std::string value = name(key);
  if (value.empty()) throw missing(key);
  return value;
}

bool ApiParameters::flag(const char* name) const {
  const auto found = values_.find(name);
  if (found == values_.end() || found->is_null()) return false;
  if (found->is_boolean()) return found->get<bool>();
  if (*found == "true" || *found == "1" || *found == 1) return true;
  if (*found == "false" || *found == "0" || *found == 0) return false;
  throw invalid(name, "must be true or false");
}

index_t ApiParameters::number(const char* name, index_t most) const {
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

std::pair<std::vector<std::string>, bool> ApiParameters::texts(const ServerOptions& options) const {
  const auto found = values_.find("q");
  if (found == values_.end() || found->is_null() || *found == "" || (found->is_array() && found->empty()))
    throw missing("q");
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

void ApiParameters::require_lengths(const std::vector<std::string>& texts, const ServerOptions& options) {
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

void ApiParameters::add(const std::string& name, const std::string& value) {
  if (find_invalid_utf8(name) || find_invalid_utf8(value))
    throw HttpError(400, "Invalid request: the form is not UTF-8");
  nlohmann::json& known = values_[name];
  if (known.is_null()) {
    known = value;
    return;
  }
  if (!known.is_array()) known = nlohmann::json::array({nlohmann::json(known)});
  known.push_back(value);
}

HttpError ApiParameters::invalid(const std::string& name, const std::string& what) {
  return HttpError(400, "Invalid request: " + name + " " + what);
}

// The same message as LibreTranslate's.
HttpError ApiParameters::missing(const std::string& name) {
  return HttpError(400, "Invalid request: missing " + name + " parameter");
}

ApiTranslation api_translation(const ApiParameters& parameters, const ServerOptions& options) {
  ApiTranslation wanted;
  std::tie(wanted.task.texts, wanted.list) = parameters.texts(options);
  wanted.source = parameters.required_name("source");
  wanted.target = parameters.required_name("target");
  const std::string format = parameters.text("format", "text");
  if (format != "text" && format != "html")
    throw HttpError(400, "Invalid request: format must be text or html");
  wanted.task.html = format == "html";
  wanted.task.alternatives = parameters.number("alternatives", options.max_alternatives);
  wanted.task.details = parameters.flag("details");
  wanted.task.adapter = parameters.name("adapter");
  wanted.stream = parameters.flag("stream");
  return wanted;
}

ApiTranslation api_file_translation(const ApiParameters& parameters, const ServerOptions& options) {
  ApiTranslation wanted;
  const FormPart& file = parameters.file();
  wanted.source = parameters.required_name("source");
  wanted.target = parameters.required_name("target");
  if (file.filename->empty()) throw HttpError(400, "Invalid request: empty file");
  const std::string ending = file_ending(*file.filename);
  if (std::find(file_endings.begin(), file_endings.end(), ending) == file_endings.end())
    throw HttpError(400, "Invalid request: file format not supported, expected .txt, .html or .htm");
  std::string text = file.content;
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);  // a byte order mark
  if (find_invalid_utf8(text)) throw HttpError(400, "Invalid request: the file is not UTF-8");
  wanted.task.texts.push_back(std::move(text));
  ApiParameters::require_lengths(wanted.task.texts, options);
  wanted.task.html = ending != ".txt";
  wanted.task.adapter = parameters.name("adapter");
  return wanted;
}

}  // namespace eigenformer::detail
