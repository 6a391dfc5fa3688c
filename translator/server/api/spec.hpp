#pragma once

#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

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
bool is_route_of(const ApiRoute& route, const std::string& path);

/// Adds the description of a route to a document in OpenAPI 2.0 (Swagger), which is that of LibreTranslate's
/// /spec; an empty object becomes such a document. Paths are relative to the server.
void add_to_spec(nlohmann::ordered_json& spec, const ApiRoute& route);

}  // namespace eigenformer::detail
