#pragma once

#include <algorithm>
#include <span>
#include <string_view>

namespace eigenformer::detail {

/// Words of a language that are written with a full stop which does not end a sentence, and words that often
/// begin one. A lower-case entry also matches its capitalised form. Inner full stops are part of an entry,
/// the last one is not: "e.g" matches "e.g." and "e. g.".
struct Abbreviations {
  /// Abbreviations that never end a sentence: titles before names, "for example".
  std::span<const std::string_view> inside{};
  /// Abbreviations that end a sentence only when a word of `openers` follows.
  std::span<const std::string_view> anywhere{};
  /// Words that are abbreviations only before a number: "No. 5".
  std::span<const std::string_view> before_numbers{};
  /// Words that often begin a sentence and are rarely capitalised elsewhere: "The"; "L'" matches "L" before
  /// an apostrophe.
  std::span<const std::string_view> openers{};
  /// Words before and after an ordinal number: "am 3. Mai". Empty: ordinals are written without a full stop.
  std::span<const std::string_view> before_ordinals{}, after_ordinals{};

  static bool has(std::span<const std::string_view> list, std::string_view word) {
    return std::find(list.begin(), list.end(), word) != list.end();
  }
};

inline constexpr std::string_view english_inside[] = {
    "Mr",  "Mrs", "Ms",  "Mx",   "Messrs", "Mmes", "Dr",   "Drs",  "Prof", "Rev",   "Fr",   "Hon",  "Pres",
    "Gov", "Sen", "Rep", "Reps", "Sens",   "Gen",  "Lt",   "Col",  "Maj",  "Capt",  "Cpt",  "Cmdr", "Cdr",
    "Sgt", "Cpl", "Pvt", "Adm",  "Brig",   "Supt", "Insp", "Det",  "Atty", "Amb",   "Msgr", "e.g",  "i.e",
    "cf",  "vs",  "viz", "ca",   "approx", "esp",  "incl", "resp", "aka",  "a.k.a", "Ph",   "Mt",   "Ft"};
inline constexpr std::string_view english_anywhere[] = {
    "al",    "Inc",  "Ltd",  "Co",   "Corp", "Bros", "Jr",    "Sr",   "Esq",  "St",    "Ave",  "Blvd",
    "Rd",    "Hwy",  "Ste",  "Bldg", "Dept", "Univ", "Assn",  "Ph.D", "M.D",  "B.A",   "M.A",  "B.Sc",
    "M.Sc",  "a.m",  "p.m",  "A.D",  "B.C",  "U.S",  "U.S.A", "U.K",  "E.U",  "U.N",   "D.C",  "est",
    "misc",  "ext",  "oz",   "lb",   "lbs",  "ft",   "hr",    "hrs",  "abbr", "ibid",  "op",   "cit",
    "Calif", "Mass", "Penn", "Ariz", "Colo", "Conn", "Fla",   "Ill",  "Mich", "Minn",  "Okla", "Tenn",
    "Tex",   "Wash", "Wis",  "Mon",  "Tue",  "Tues", "Wed",   "Thu",  "Thur", "Thurs", "Fri"};
inline constexpr std::string_view english_before_numbers[] = {
    "no",   "nos", "nr",  "p",    "pp",  "par", "para", "pt",   "vol", "vols",   "ch",
    "chap", "art", "fig", "figs", "eq",  "eqs", "ref",  "refs", "tab", "ver",    "cl",
    "tel",  "Jan", "Feb", "Mar",  "Apr", "Jun", "Jul",  "Aug",  "Sep", "Sept",   "Oct",
    "Nov",  "Dec", "Ps",  "Matt", "Cor", "Rom", "c",    "max",  "min", "approx", "sec"};
inline constexpr std::string_view english_openers[] = {
    "A",         "About",     "According", "After",     "All",    "Also",
    "Although",  "An",        "And",       "Another",   "Any",    "Are",
    "As",        "At",        "Because",   "Before",    "Both",   "But",
    "By",        "Can",       "Could",     "Did",       "Do",     "Does",
    "During",    "Each",      "Even",      "Every",     "Few",    "Finally",
    "First",     "For",       "From",      "Had",       "Has",    "Have",
    "He",        "Her",       "Here",      "His",       "How",    "However",
    "I",         "If",        "In",        "Instead",   "Is",     "It",
    "Its",       "Just",      "Last",      "Later",     "Let",    "Many",
    "Maybe",     "Meanwhile", "More",      "Most",      "My",     "Never",
    "No",        "Nobody",    "Not",       "Nothing",   "Now",    "Of",
    "On",        "Once",      "One",       "Only",      "Or",     "Other",
    "Our",       "Perhaps",   "Please",    "She",       "Should", "Since",
    "So",        "Some",      "Someone",   "Sometimes", "Soon",   "Still",
    "Such",      "That",      "The",       "Their",     "Then",   "There",
    "Therefore", "These",     "They",      "This",      "Those",  "Though",
    "Thus",      "To",        "Today",     "Two",       "Under",  "Unfortunately",
    "Until",     "Was",       "We",        "Well",      "Were",   "What",
    "When",      "Where",     "Whether",   "Which",     "While",  "Who",
    "Whose",     "Why",       "Will",      "With",      "Within", "Without",
    "Would",     "Yes",       "Yet",       "You",       "Your",   "Don'",
    "Doesn'",    "Didn'",     "Isn'",      "Aren'",     "Wasn'",  "Weren'",
    "Won'"};

inline constexpr std::string_view german_inside[] = {
    "Hr",   "Hrn",   "Fr",    "Frl",   "Dr",     "Drs",   "Prof",    "Dipl",   "Ing",   "Mag",   "Hl",
    "hl",   "St",    "Frhr",  "Gen",   "Hptm",   "Lt",    "Kdt",     "Präs",   "Abg",   "Univ",  "z.B",
    "d.h",  "d.i",   "i.d.R", "i.e.S", "i.w.S",  "i.A",   "i.V",     "z.T",    "z.Z",   "z.Zt",  "z.Hd",
    "m.E",  "m.W",   "o.g",   "s.o",   "s.u",    "u.U",   "u.E",     "v.a",    "zzgl",  "zzt",   "bzw",
    "bspw", "bes",   "ca",    "evtl",  "ehem",   "eigtl", "einschl", "exkl",   "ggf",   "ggfs",  "gegr",
    "geb",  "gest",  "inkl",  "insb",  "insbes", "jew",   "lat",     "lt",     "mind",  "nördl", "östl",
    "südl", "westl", "rd",    "reg",   "sog",    "sogen", "tägl",    "unbek",  "urspr", "verh",  "vgl",
    "vorm", "wg",    "zus",   "zw",    "dt",     "engl",  "frz",     "griech", "ital",  "span",  "russ",
    "rer",  "a.d",   "Abk",   "allg",  "betr",   "Ggs",   "gem",     "p.a",    "vs"};
inline constexpr std::string_view german_anywhere[] = {
    "usw",  "usf",   "etc",   "v.Chr", "n.Chr", "d.Gr", "h.c", "med",  "nat",  "phil", "jur", "u.a",
    "u.ä",  "u.v.a", "u.v.m", "o.ä",   "o.Ä",   "ff",   "f",   "Co",   "Corp", "Inc",  "Jh",  "Jhd",
    "Jhdt", "Jr",    "jun",   "sen",   "Std",   "Min",  "Sek", "Mio",  "Mrd",  "Tsd",  "Str", "str",
    "Pl",   "Hbf",   "Bhf",   "Hrsg",  "Verf",  "Verl", "Anm", "Ausg", "Aufl", "dgl",  "Ltd"};
inline constexpr std::string_view german_before_numbers[] = {
    "Nr",  "Nrn", "No",  "S",   "Bd",  "Bde", "Kap", "Abs", "Abschn", "Abb", "Art", "Tab", "Ziff", "Pos",
    "Tel", "Vol", "V",   "Jan", "Jän", "Feb", "Mär", "Apr", "Jun",    "Jul", "Aug", "Sep", "Sept", "Okt",
    "Nov", "Dez", "Str", "str", "Az",  "Gl",  "Fig", "Lit", "Lfg",    "Tl",  "max", "min", "ca"};
inline constexpr std::string_view german_openers[] = {
    "Aber",       "Alle",    "Alles",    "Als",     "Also",    "Am",      "An",      "Andere", "Auch",
    "Auf",        "Aus",     "Außerdem", "Bei",     "Beide",   "Beim",    "Bis",     "Bitte",  "Da",
    "Dabei",      "Dafür",   "Daher",    "Damals",  "Damit",   "Danach",  "Dann",    "Darauf", "Darum",
    "Das",        "Dass",    "Davon",    "Dazu",    "Dein",    "Deine",   "Dem",     "Den",    "Denn",
    "Dennoch",    "Der",     "Deren",    "Des",     "Deshalb", "Dessen",  "Die",     "Dies",   "Diese",
    "Dieser",     "Dieses",  "Doch",     "Dort",    "Du",      "Durch",   "Ein",     "Eine",   "Einem",
    "Einen",      "Einer",   "Eines",    "Einige",  "Er",      "Erst",    "Es",      "Euer",   "Für",
    "Gegen",      "Gibt",    "Hat",      "Haben",   "Heute",   "Hier",    "Hinter",  "Hast",   "Ich",
    "Ihm",        "Ihn",     "Ihr",      "Ihre",    "Im",      "Immer",   "In",      "Ins",    "Ist",
    "Ja",         "Jede",    "Jeder",    "Jedes",   "Jedoch",  "Jemand",  "Jetzt",   "Kann",   "Kannst",
    "Kein",       "Keine",   "Könnte",   "Könnten", "Man",     "Manche",  "Mein",    "Meine",  "Mit",
    "Nach",       "Nachdem", "Nein",     "Nicht",   "Nichts",  "Nie",     "Niemand", "Noch",   "Nun",
    "Nur",        "Ob",      "Obwohl",   "Oder",    "Ohne",    "Schon",   "Sehr",    "Sein",   "Seine",
    "Seit",       "Sich",    "Sie",      "Sind",    "So",      "Solche",  "Sondern", "Später", "Trotz",
    "Trotzdem",   "Über",    "Um",       "Und",     "Uns",     "Unser",   "Unsere",  "Unter",  "Viele",
    "Vielleicht", "Vom",     "Von",      "Vor",     "Während", "Wann",    "War",     "Waren",  "Warum",
    "Was",        "Weder",   "Weil",     "Weitere", "Welche",  "Welcher", "Wenn",    "Wer",    "Werden",
    "Wie",        "Wieder",  "Will",     "Wir",     "Wird",    "Wo",      "Wurde",   "Wurden", "Zu",
    "Zuerst",     "Zum",     "Zur",      "Zwar",    "Zwischen"};
inline constexpr std::string_view german_before_ordinals[] = {
    "ab",      "am",      "an",        "auf",    "beim",   "bis",    "dem",      "den",      "der",
    "des",     "die",     "das",       "dein",   "deinem", "deinen", "deiner",   "dieser",   "diesem",
    "diesen",  "ein",     "eine",      "einem",  "einen",  "einer",  "ihr",      "ihre",     "ihrem",
    "ihren",   "ihrer",   "im",        "in",     "ins",    "jede",   "jedem",    "jeden",    "jeder",
    "jedes",   "mein",    "meine",     "meinem", "meinen", "meiner", "nach",     "sein",     "seine",
    "seinem",  "seinen",  "seiner",    "seit",   "unser",  "unsere", "unserem",  "unseren",  "unserer",
    "vom",     "von",     "vor",       "zum",    "zur",    "Montag", "Dienstag", "Mittwoch", "Donnerstag",
    "Freitag", "Samstag", "Sonnabend", "Sonntag"};
inline constexpr std::string_view german_after_ordinals[] = {
    // months
    "Januar", "Jänner", "Februar", "März", "April", "Mai", "Juni", "Juli", "August", "September", "Oktober",
    "November", "Dezember", "Jan", "Jän", "Feb", "Apr", "Jun", "Jul", "Aug", "Sep", "Sept", "Okt", "Nov",
    "Dez", "Juno",
    // what is counted
    "Jahrhundert", "Jahrhunderts", "Jh", "Jhd", "Jahrtausend", "Jahrtausends", "Weltkrieg", "Weltkriegs",
    "Weltkrieges", "Klasse", "Stock", "Stockwerk", "Etage", "Platz", "Rang", "Mal", "Tag", "Tages", "Woche",
    "Monat", "Jahr", "Jahres", "Lebensjahr", "Geburtstag", "Jahrestag", "Hochzeitstag", "Auflage", "Kapitel",
    "Band", "Bezirk", "Liga", "Minute", "Runde", "Spieltag", "Semester", "Quartal", "Staffel", "Folge",
    "Teil", "Armee", "Division", "Legislaturperiode", "Breitengrad", "Längengrad", "Präsident",
    "Präsidenten"};

inline constexpr std::string_view french_inside[] = {
    "M",   "MM",  "Mr",  "Mme", "Mmes", "Mlle",   "Mlles", "Mgr",  "Me", "Dr",  "Drs", "Pr",  "Prof", "St",
    "Ste", "Gén", "Col", "Cdt", "Lt",   "c.-à-d", "c.à.d", "p.ex", "cf", "env", "vs",  "Vve", "Bx"};
inline constexpr std::string_view french_anywhere[] = {"av",  "apr", "J.-C", "J.C", "boul", "bd",   "Cie",
                                                       "Sté", "S.A", "dép",  "éd",  "hab",  "ibid", "suiv",
                                                       "sqq", "tél", "jr",   "inc", "ltée"};
inline constexpr std::string_view french_before_numbers[] = {
    "no",   "nos", "n",    "p",    "pp",  "art", "chap", "vol",  "fig", "tab", "al",  "t",  "v",
    "sect", "tél", "janv", "févr", "fév", "avr", "juil", "sept", "oct", "nov", "déc", "env"};
inline constexpr std::string_view french_openers[] = {
    "À",         "A",      "Afin",     "Ainsi",    "Alors",   "Après",     "Au",       "Aucun", "Aucune",
    "Aujourd",   "Aussi",  "Autour",   "Aux",      "Avant",   "Avec",      "Bien",     "C'",    "Ça",
    "Car",       "Ce",     "Cela",     "Celui",    "Celle",   "Cependant", "Ces",      "Cet",   "Cette",
    "Chaque",    "Chez",   "Combien",  "Comme",    "Comment", "D'",        "Dans",     "De",    "Depuis",
    "Des",       "Dès",    "Deux",     "Donc",     "Du",      "Elle",      "Elles",    "En",    "Enfin",
    "Ensuite",   "Entre",  "Est",      "Et",       "Où",      "Hier",      "Ici",      "Il",    "Ils",
    "J'",        "Je",     "L'",       "La",       "Là",      "Le",        "Les",      "Leur",  "Leurs",
    "Lorsque",   "Lui",    "Ma",       "Mais",     "Malgré",  "Même",      "Mes",      "Moi",   "Mon",
    "N'",        "Ne",     "Ni",       "Non",      "Nos",     "Notre",     "Nous",     "On",    "Or",
    "Ou",        "Oui",    "Par",      "Parce",    "Pas",     "Pendant",   "Personne", "Peut",  "Plus",
    "Plusieurs", "Pour",   "Pourquoi", "Pourtant", "Puis",    "Puisque",   "Qu'",      "Quand", "Que",
    "Quel",      "Quelle", "Quelles",  "Quels",    "Qui",     "Quoi",      "Rien",     "S'",    "Sa",
    "Sans",      "Selon",  "Ses",      "Seul",     "Si",      "Son",       "Sous",     "Sur",   "Ta",
    "Tandis",    "Tes",    "Ton",      "Tous",     "Tout",    "Toute",     "Toutes",   "Très",  "Tu",
    "Un",        "Une",    "Vers",     "Voici",    "Voilà",   "Vos",       "Votre",    "Vous",  "Y"};

// For text whose language is not known: what stands before names and numbers in several languages, and words
// before German ordinals that are no words of other common languages.
inline constexpr std::string_view common_inside[] = {
    "Mr",  "Mrs",  "Ms",  "Mx",  "Mme",  "Mlle", "Dr", "Drs", "Prof", "Sr",
    "Sra", "Srta", "Hr",  "Hrn", "Capt", "Maj",  "Lt", "Col", "Sgt",  "Dipl",
    "e.g", "i.e",  "z.B", "d.h", "p.ex", "cf",   "vs", "ca",  "bzw",  "c.-à-d"};
inline constexpr std::string_view common_before_numbers[] = {
    "No",  "Nos", "Nr",  "no",  "nos", "nr",  "n",   "p",   "pp",  "Vol",  "vol", "Art", "art",
    "Fig", "fig", "Kap", "Jan", "Feb", "Mar", "Apr", "Aug", "Sep", "Sept", "Oct", "Nov", "Dec"};

inline constexpr std::string_view common_before_ordinals[] = {"beim",    "dem",   "ihrem",  "ihren",  "jedem",
                                                              "jeden",   "jeder", "seinem", "seinen", "seit",
                                                              "unserem", "vom",   "zum",    "zur"};

/// The lists of a language, by its two-letter code (ISO 639-1); of an empty code, what many languages have;
/// empty lists for other languages.
inline Abbreviations abbreviations_of(std::string_view language) {
  if (language == "en")
    return {english_inside, english_anywhere, english_before_numbers, english_openers, {}, {}};
  if (language == "de")
    return {german_inside,  german_anywhere,        german_before_numbers,
            german_openers, german_before_ordinals, german_after_ordinals};
  if (language == "fr")
    return {french_inside, french_anywhere, french_before_numbers, french_openers, {}, {}};
  if (language.empty())
    return {common_inside, {}, common_before_numbers, {}, common_before_ordinals, german_after_ordinals};
  return {};
}

}  // namespace eigenformer::detail
