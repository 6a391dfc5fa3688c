#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>

#include "eigenformer/version.hpp"

namespace eigenformer::detail {

/// A parameter of a route for its description.
struct ApiField {
  const char* name;         ///< its name
  const char* type;         ///< one of OpenAPI's, "file", or "texts", a text or a list of texts
  bool required;            ///< whether requests without it are refused
  const char* description;  ///< its meaning
};

/// A route of a server, and its description.
struct ApiRoute {
  const char* path;                    ///< such as "/translate"; a last component in braces is any name
  const char* method;                  ///< GET (then HEAD works, too) or POST
  const char* summary;                 ///< what it does
  const char* answer;                  ///< content type of the answer
  std::span<const ApiField> fields{};  ///< parameters of a POST, in its body
};

/// Whether a route is the one of a path.
inline bool is_route_of(const ApiRoute& route, const std::string& path) {
  const std::string own = route.path;
  const std::size_t brace = own.find('{');
  if (brace == std::string::npos) return path == own;
  return path.size() > brace && path.starts_with(own.substr(0, brace)) &&
         path.find('/', brace) == std::string::npos;
}

/// Adds the description of a route to a document in OpenAPI 2.0 (Swagger), which is that of LibreTranslate's
/// /spec; an empty object becomes such a document. Paths are relative to the server.
inline void add_to_spec(nlohmann::ordered_json& spec, const ApiRoute& route) {
  using json = nlohmann::ordered_json;
  const json error = {{"type", "object"}, {"properties", {{"error", {{"type", "string"}}}}}};
  if (spec.empty()) {
    spec = {{"swagger", "2.0"},
            {"info",
             {{"title", "eigenformer"},
              {"version", version_string()},
              {"description",
               "LibreTranslate's API. Each route also answers OPTIONS, and one with GET also HEAD."}}},
            {"paths", json::object()},
            {"definitions", {{"error", error}}}};
  }
  json parameters = json::array();
  const std::string path = route.path;
  if (const std::size_t brace = path.find('{'); brace != std::string::npos) {
    parameters.push_back({{"in", "path"},
                          {"name", path.substr(brace + 1, path.size() - brace - 2)},
                          {"type", "string"},
                          {"required", true}});
  }
  bool has_file = false;  // then the body must be multipart
  for (const ApiField& field : route.fields) {
    has_file = has_file || field.type == std::string("file");
    json parameter = {{"in", "formData"},
                      {"name", field.name},
                      {"type", field.type},
                      {"required", field.required},
                      {"description", field.description}};
    if (field.type == std::string("texts")) {
      parameter["type"] = "array";
      parameter["items"] = {{"type", "string"}};
      parameter["collectionFormat"] = "multi";
    }
    parameters.push_back(std::move(parameter));
  }
  json operation = {
      {"summary", route.summary},
      {"produces", {route.answer}},
      {"parameters", std::move(parameters)},
      {"responses",
       {{"200", {{"description", "the answer"}}},
        {"default", {{"description", "an error"}, {"schema", {{"$ref", "#/definitions/error"}}}}}}}};
  if (has_file) {
    operation["consumes"] = {"multipart/form-data"};
  } else if (route.method == std::string("POST")) {
    operation["consumes"] = {"application/x-www-form-urlencoded", "multipart/form-data", "application/json"};
  }
  spec["paths"][path][route.method == std::string("POST") ? "post" : "get"] = std::move(operation);
}

}  // namespace eigenformer::detail
