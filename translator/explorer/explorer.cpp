#include "translator/explorer/explorer.hpp"

#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "eigenformer/core/base/error.hpp"
#include "translator/explorer/page_text.hpp"

namespace eigenformer {

namespace {

// A layer's weights (H, rows, columns) in thousandths: a list for each head, row by row.
nlohmann::json explorer_layer(const Tensor<float>& weights, std::size_t rows, std::size_t columns,
                              const char* what) {
  if (weights.rank() != 3 || weights.dim(1) != static_cast<index_t>(rows) ||
      weights.dim(2) != static_cast<index_t>(columns)) {
    throw ShapeError("explorer",
                     {"weights of the attention '", what, "' of shape ", weights.shape(), " must be (heads, ",
                      rows, ", ", columns, ") to match the tokens"},
                     {weights.shape()});
  }
  nlohmann::json heads = nlohmann::json::array();
  const index_t count = weights.dim(1) * weights.dim(2);
  for (index_t h = 0; h < weights.dim(0); ++h) {
    std::vector<int> values;
    for (index_t i = 0; i < count; ++i) {
      const float weight = weights.data()[h * count + i];
      if (!(weight >= 0 && weight <= 1.001F)) {
        throw ValueError("explorer",
                         {"a weight of the attention '", what, "' is ", weight, ", must be between 0 and 1"});
      }
      values.push_back(static_cast<int>(std::lround(weight * 1000)));
    }
    heads.push_back(std::move(values));
  }
  return heads;
}

}  // namespace

std::string explorer_page(std::span<const ExploredSentence> sentences, const std::string& title) {
  nlohmann::json list = nlohmann::json::array();
  for (const ExploredSentence& s : sentences) {
    const std::size_t rows = s.target_tokens.size(), sources = s.source_tokens.size();
    if (s.maps.source.empty() && s.maps.target.empty() && s.maps.memory.empty()) {
      throw ValueError("explorer", {"sentence ", list.size(),
                                    " has no attention weights, expected those of at least one layer"});
    }
    nlohmann::json maps = {{"source", nlohmann::json::array()},
                           {"target", nlohmann::json::array()},
                           {"memory", nlohmann::json::array()}};
    for (const auto& layer : s.maps.source)
      maps["source"].push_back(explorer_layer(layer, sources, sources, "source"));
    for (const auto& layer : s.maps.target)
      maps["target"].push_back(explorer_layer(layer, rows, rows, "target"));
    for (const auto& layer : s.maps.memory)
      maps["memory"].push_back(explorer_layer(layer, rows, sources, "memory"));
    std::vector<std::string> read{s.begin_token};
    if (rows > 0) read.insert(read.end(), s.target_tokens.begin(), s.target_tokens.end() - 1);
    list.push_back({{"line", s.line},
                    {"source", s.source},
                    {"target", s.target},
                    {"source_tokens", s.source_tokens},
                    {"target_tokens", s.target_tokens},
                    {"input_tokens", read},
                    {"maps", std::move(maps)}});
  }
  const std::string json = nlohmann::json{{"sentences", std::move(list)}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
  std::string data, name;
  // "</script>" and "<!--" in a text must not end the element that holds it.
  for (const char c : json) c == '<' ? data += "\\u003c" : data += c;
  for (const char c : title) {
    c == '<' ? name += "&lt;" : c == '&' ? name += "&amp;" : name += c;
  }
  return "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
         "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
         "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src "
         "'unsafe-inline'; style-src 'unsafe-inline'\">\n<title>" +
         name + "</title>\n<style>\n" + detail::explorer_style + "</style>\n</head>\n<body>\n" +
         detail::explorer_html + "<script type=\"application/json\" id=\"data\">" + data +
         "</script>\n<script>\n" + detail::explorer_script + "</script>\n</body>\n</html>\n";
}

}  // namespace eigenformer
