#include <doctest/doctest.h>

#include <chrono>
#include <set>
#include <string>
#include <vector>

#include "server_tools.hpp"
#include "translator/server/api/files.hpp"
#include "translator/server/api/multipart.hpp"

namespace ef = eigenformer;
using namespace eigenformer::testing;
using json = nlohmann::json;

namespace {

const std::string multipart = "Content-Type: multipart/form-data; boundary=XX\r\n";

/// A part of a form with the boundary XX.
std::string part(const std::string& disposition, const std::string& content, const std::string& more = "") {
  return "--XX\r\nContent-Disposition: form-data; " + disposition + "\r\n" + more + "\r\n" + content + "\r\n";
}

/// A form that sends a file for translation from English to German.
std::string file_form(const std::string& name, const std::string& content, const std::string& source = "en") {
  return part("name=\"source\"", source) + part("name=\"target\"", "de") +
         part("name=\"file\"; filename=\"" + name + "\"", content, "Content-Type: text/plain\r\n") +
         "--XX--\r\n";
}

/// The status of the error that parsing a form gives; 0: none.
unsigned refused(const std::string& body, const std::string& type = "multipart/form-data; boundary=XX",
                 std::size_t most = 100) {
  try {
    (void)ef::detail::parse_multipart(body, type, most);
  } catch (const ef::HttpError& error) {
    return error.status();
  }
  return 0;
}

}  // namespace

TEST_CASE("forms in multipart/form-data are read as browsers and curl write them") {
  const auto parts =
      ef::detail::parse_multipart("preamble\r\n" + part("name=\"q\"", "a\r\n--X\r\nb") + part("name=q", "") +
                                      part("name=\"a\\\"b\"; filename=\"C:\\\\x\\y;z.txt\"",
                                           std::string("\0\xFF\r\n", 4), "X-Other: c\r\n") +
                                      "--XX--\r\nepilogue",
                                  "multipart/form-data; charset=utf-8; boundary=\"XX\"", 100);
  REQUIRE(parts.size() == 3);
  CHECK(parts[0].name == "q");
  CHECK(parts[0].content == "a\r\n--X\r\nb");
  CHECK_FALSE(parts[0].filename.has_value());
  CHECK(parts[1].name == "q");
  CHECK(parts[1].content == "");
  CHECK(parts[2].name == "a\"b");
  CHECK(parts[2].filename == "C:\\x\\y;z.txt");
  CHECK(parts[2].content == std::string("\0\xFF\r\n", 4));
  CHECK(ef::detail::parse_multipart("--XX--", "multipart/form-data;boundary=XX", 1).empty());
  // A line that only begins as the boundary is content.
  CHECK(ef::detail::parse_multipart(part("name=q", "a\r\n--XXX\r\nb") + "--XX  --\r\n--XX--",
                                    "a; boundary=XX", 1)
            .at(0)
            .content == "a\r\n--XXX\r\nb\r\n--XX  --");
}

TEST_CASE("forms in multipart/form-data that are not valid") {
  const std::string good = part("name=q", "a");
  CHECK(refused(good + "--XX--") == 0);
  for (const char* type :
       {"multipart/form-data", "multipart/form-data; boundary=", "multipart/form-data; boundary=\"",
        "multipart/form-data; boundary=XX; boundary=XX", "multipart/form-data; boundary",
        "multipart/form-data; boundary=\"XX\"x"}) {
    CAPTURE(type);
    CHECK(refused(good + "--XX--", type) == 400);
  }
  CHECK(refused(good + "--XX--", "multipart/form-data; boundary=" + std::string(71, 'X')) == 400);
  for (const std::string& bad :
       {std::string(), std::string("a"), good, good + "--XX", good + "--XX-", good + "--XX\r\n--XX--",
        std::string("--XX\r\n\r\na\r\n--XX--"), std::string("--XX\r\nname: q\r\n\r\na\r\n--XX--"),
        std::string("--XX\r\nno colon\r\n\r\na\r\n--XX--"),
        std::string("--XX\r\nContent-Disposition: form-data"), part("name=q; name=q", "a") + "--XX--",
        part("filename=q", "a") + "--XX--", part("name=\"q", "a") + "--XX--", part("name", "a") + "--XX--",
        part("name=q", "a", "Content-Disposition: form-data; name=r\r\n") + "--XX--",
        part("name=q", "a", "Content-Transfer-Encoding: base64\r\n") + "--XX--",
        std::string("--XX\r\nContent-Disposition: attachment; name=q\r\n\r\na\r\n--XX--"),
        part("name=q", "a", "X: " + std::string(5000, 'a') + "\r\n") + "--XX--"}) {
    CAPTURE(bad);
    CHECK(refused(bad) == 400);
  }
  // Parts within a part are its content; many parts are refused before all of them are read.
  const auto nested = ef::detail::parse_multipart(
      part("name=q", "--YY\r\n\r\na\r\n--YY--", "Content-Type: multipart/mixed; boundary=YY\r\n") + "--XX--",
      "multipart/form-data; boundary=XX", 1);
  REQUIRE(nested.size() == 1);
  CHECK(nested[0].content == "--YY\r\n\r\na\r\n--YY--");
  std::string many;
  for (int i = 0; i < 1'000'000; ++i) many += "--XX\r\nContent-Disposition: form-data; name=q\r\n\r\n\r\n";
  CHECK(refused(many + "--XX--") == 400);
  std::string lines;
  for (int i = 0; i < 100'000; ++i) lines += "\r\n--XX ";
  CHECK(refused("--XX" + lines + std::string(500'000, ' ')) == 400);
}

TEST_CASE("translate: a form in multipart/form-data, and its limits") {
  ef::ServerOptions options;
  options.max_texts = 3;
  TestServer server(options);
  const auto form = [&](const std::string& parts) {
    return post("/translate", parts + part("name=source", "en") + part("name=target", "de") + "--XX--",
                multipart);
  };
  CHECK(server.json(form(part("name=q", "gr\xC3\xBCn"))) == json{{"translatedText", "[gr\xC3\xBCn]"}});
  CHECK(server.json(form(part("name=q", "a") + part("name=q", "b"))) ==
        json{{"translatedText", {"[a]", "[b]"}}});
  CHECK(server.json(form(part("name=q", "a") + part("name=format", "html"))).at("translatedText") == "<a]");
  const auto error = [&](const std::string& request, unsigned status) {
    return server.json(request, status).at("error").get<std::string>();
  };
  CHECK(error(form(part("name=q", "\xFF")), 400) == "Invalid request: the form is not UTF-8");
  CHECK(error(form(part("name=\"\xFF\"", "a")), 400) == "Invalid request: the form is not UTF-8");
  CHECK(error(form(part("name=q; filename=a.txt", "a")), 400) == "Invalid request: missing q parameter");
  CHECK(error(form(part("name=q; filename=a", "a") + part("name=r; filename=a", "a")), 400) ==
        "Invalid request: the form has two files, expected one");
  CHECK(error(form(part("name=source", "en") + part("name=q", "a")), 400) ==
        "Invalid request: source must be a text");
  std::string many, pairs = "source=en&target=de";
  for (int i = 0; i < 100; ++i) {
    many += part("name=q" + std::to_string(i), "a");
    pairs += "&q" + std::to_string(i) + "=a";
  }
  CHECK(error(form(many), 400) == "Invalid request: the form has more than 35 fields");
  CHECK(error(post("/translate", pairs, "Content-Type: application/x-www-form-urlencoded\r\n"), 400) ==
        "Invalid request: the form has too many fields");
}

TEST_CASE("an empty q is an error, as LibreTranslate's; an empty text of a list is none") {
  TestServer server;
  const std::string form = "Content-Type: application/x-www-form-urlencoded\r\n";
  for (const std::string& request :
       {translate(""), translate(nullptr), translate(json::array()), post("/detect", R"({"q": ""})"),
        post("/translate", "q=&source=en&target=de", form), post("/detect", "q=", form),
        post("/translate", R"({"source": "en", "target": "de"})")})
    CHECK(server.json(request, 400).at("error") == "Invalid request: missing q parameter");
  CHECK(server.json(translate(json{""})) == json{{"translatedText", {"[]"}}});
}

TEST_CASE("translate_file: a text or a page is translated and can be downloaded") {
  TestServer server;
  const auto translated = [&](const std::string& name, const std::string& content,
                              const std::string& more = "") {
    const json answer = server.json(post("/translate_file", file_form(name, content), multipart + more));
    CHECK(answer.size() == 1);
    return answer.at("translatedFileUrl").get<std::string>();
  };
  const auto path = [](const std::string& url) { return url.substr(url.find("/download_file/")); };
  const std::string url = translated("letter.TXT", "\xEF\xBB\xBFgr\xC3\xBCn\r\nb");
  CHECK(url.find("http://localhost/download_file/") == 0);
  CHECK(url.ends_with(".letter_de.txt"));
  CHECK(url.size() == std::string("http://localhost/download_file/.letter_de.txt").size() + 32);
  const auto file = server.ask(get(path(url)));
  CHECK(file.result_int() == 200);
  CHECK(file.body() == "[gr\xC3\xBCn\r\nb]");
  CHECK(file["Content-Type"] == "text/plain; charset=utf-8");
  CHECK(file["Content-Disposition"] == "attachment; filename=\"letter_de.txt\"");
  CHECK(server.ask(get(path(url))).result_int() == 200);  // as often as wanted
  CHECK(translated("letter.txt", "a") != translated("letter.txt", "a"));
  const auto page = server.ask(get(path(translated("a.b.html", "<p>a</p>"))));
  CHECK(page.body() == "<<p>a</p>]");
  CHECK(page["Content-Type"] == "text/html; charset=utf-8");
  CHECK(page["Content-Security-Policy"] == "default-src 'none'; sandbox");
  CHECK(page["X-Content-Type-Options"] == "nosniff");
  CHECK(translated("a.htm", "a", "X-Forwarded-Proto: https\r\n").find("https://localhost/") == 0);
  // A name is one of a file wherever it is stored.
  for (const auto& [name, stored] : {std::pair("../../etc/passwd.txt", "passwd_de.txt"),
                                     {"C:\\\\boot.txt", "boot_de.txt"},
                                     {".txt", "file_de.txt"},
                                     {"..txt", "__de.txt"},
                                     {"a b\xC3\xA4;%00.txt", "a_b____00_de.txt"}}) {
    const std::string found = translated(name, "a");
    CHECK(found.substr(found.find('.') + 1) == stored);
    CHECK(server.ask(get(path(found))).body() == "[a]");
  }
  CHECK(path(translated(std::string(500, 'n') + ".txt", "a")).size() < 150);
  const json settings = server.json(get("/frontend/settings"));
  CHECK(settings.at("filesTranslation") == true);
  CHECK(settings.at("supportedFilesFormat") == json{".txt", ".html", ".htm"});
  CHECK(server.records().front().route == "/translate_file");
  CHECK(server.records().at(1).route == "/download_file/{name}");
}

TEST_CASE("translate_file: what is refused") {
  ef::ServerOptions options;
  options.max_characters = 100;
  options.max_file_bytes = 50;
  options.api_keys = {"a key of mine"};
  TestServer server(options);
  const std::string key = multipart + "Authorization: Bearer a key of mine\r\n";
  const auto error = [&](const std::string& form, unsigned status) {
    return server.json(post("/translate_file", form, key), status).at("error").get<std::string>();
  };
  CHECK(server.ask(post("/translate_file", file_form("a.txt", "a"), multipart)).result_int() == 401);
  CHECK(error(file_form("a.pdf", "a"), 400) ==
        "Invalid request: file format not supported, expected .txt, .html or .htm");
  CHECK(error(file_form("txt", "a"), 400).find("file format not supported") != std::string::npos);
  CHECK(error(file_form("", "a"), 400) == "Invalid request: empty file");
  CHECK(error(file_form("a.txt",
                        "\xFF\xFE"
                        "a"),
              400) == "Invalid request: the file is not UTF-8");
  CHECK(error(file_form("a.txt", std::string(101, 'a')), 422) ==
        "the request has 101 characters, at most 100 are allowed");
  CHECK(error(file_form("a.txt", std::string(90, 'a')), 413) ==
        "the translated file is too large to be kept");
  CHECK(error(file_form("a.txt", "a", std::string(300, 'x')), 400) ==
        "Invalid request: source must have at most 256 bytes");
  CHECK(error(file_form("a.txt", "a", "xx"), 400) == "xx is not supported");
  CHECK(error(part("name=source", "en") + part("name=target", "de") + part("name=file", "a") + "--XX--",
              400) == "Invalid request: missing file parameter");
  CHECK(error(part("name=file; filename=a.txt", "a") + part("name=target", "de") + "--XX--", 400) ==
        "Invalid request: missing source parameter");
  CHECK(server
            .json(post("/translate_file", R"({"file": "a", "source": "en", "target": "de"})",
                       "Content-Type: application/json\r\nAuthorization: Bearer a key of mine\r\n"),
                  400)
            .at("error") == "Invalid request: missing file parameter");
  for (const std::string host : {"a/b", "a\"b", "a@b"}) {
    const std::string form = file_form("a.txt", "a");
    CHECK(server
              .ask("POST /translate_file HTTP/1.1\r\nHost: " + host +
                   "\r\nContent-Length: " + std::to_string(form.size()) + "\r\n" + key + "\r\n" + form)
              .result_int() == 400);
  }
  for (const char* name :
       {"", "a", "../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%00", ".", "..", "/etc/passwd"}) {
    CAPTURE(name);
    CHECK(server.ask(get(std::string("/download_file/") + name)).result_int() == 404);
  }
  // The same language is no translation, but a file as any other.
  const std::string same =
      server.json(post("/translate_file", file_form("a.txt", "the same", "de"), key)).at("translatedFileUrl");
  CHECK(server.ask(get(same.substr(same.find("/download_file/")))).body() == "the same");
}

TEST_CASE("translated files are kept for their time and while there is room") {
  using Clock = ef::detail::TranslatedFiles::Clock;
  const Clock::time_point now = Clock::now();
  ef::detail::TranslatedFiles files(10, std::chrono::seconds(60));
  const std::string first = files.add("a.txt", "1234", now), second = files.add("b.txt", "5678", now);
  CHECK(files.get(first, now) == "1234");
  CHECK(files.get(second, now + std::chrono::seconds(59)) == "5678");
  const std::string third = files.add("c.txt", "90ab", now + std::chrono::seconds(30));
  CHECK_FALSE(files.get(first, now + std::chrono::seconds(30)).has_value());
  CHECK(files.get(second, now + std::chrono::seconds(30)) == "5678");
  CHECK_FALSE(files.get(second, now + std::chrono::seconds(60)).has_value());
  CHECK(files.get(third, now + std::chrono::seconds(60)) == "90ab");
  CHECK_THROWS_AS((void)files.add("d.txt", "0123456789a", now), ef::HttpError);
  CHECK(files.get(third, now + std::chrono::seconds(60)) == "90ab");
  CHECK_FALSE(files.get(third.substr(0, 32), now + std::chrono::seconds(60)).has_value());
}

TEST_CASE("spec: every route, as it is served, and no other") {
  TestServer server;
  const json spec = server.json(get("/spec"));
  CHECK(spec.at("swagger") == "2.0");
  std::set<std::string> paths;
  for (const auto& entry : spec.at("paths").items()) {
    const std::string path = entry.key();
    const json& operations = entry.value();
    CAPTURE(path);
    paths.insert(path);
    REQUIRE(operations.size() == 1);
    const std::string method = operations.begin().key();
    const std::string own = path.substr(0, path.find('{'));
    const auto options = server.ask(get(own + (own == path ? "" : "name"), "", "OPTIONS"));
    CHECK(options.result_int() == 204);
    CHECK(options["Allow"] == (method == "post" ? "POST, OPTIONS" : "GET, HEAD, OPTIONS"));
    const json& operation = operations.begin().value();
    const auto answer =
        server.ask(method == "post" ? post(path, "{}") : get(own + (own == path ? "" : "name")));
    CHECK(answer.result_int() == (method == "post" ? 400u : own == path ? 200u : 404u));
    if (answer.result_int() == 200)
      CHECK(std::string(answer["Content-Type"]).find(operation.at("produces").at(0).get<std::string>()) == 0);
    // The first required parameter is the one that is missing.
    if (method == "post") {
      const std::string missing = json::parse(answer.body()).at("error");
      for (const json& parameter : operation.at("parameters")) {
        if (parameter.at("required") != true) continue;
        CHECK(missing.find("missing " + parameter.at("name").get<std::string>() + " parameter") !=
              std::string::npos);
        break;
      }
    }
  }
  // All that the sources of the server name as routes.
  CHECK(paths == std::set<std::string>{"/", "/detect", "/download_file/{name}", "/frontend/settings",
                                       "/health", "/languages", "/metrics", "/page.css", "/page.js", "/spec",
                                       "/translate", "/translate_file"});
}
