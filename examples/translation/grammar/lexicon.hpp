#pragma once

#include <array>
#include <span>

/// The words of the English-German grammar: what both languages need to know about each.
namespace toy::grammar {

enum class Gender { masculine, feminine, neuter };

/// What a noun names; says which nouns a verb or an adjective goes with. Values are bits of a set. "my man"
/// would be my husband, so some are unowned.
enum Kind : unsigned {
  person = 1,
  animal = 2,
  thing = 4,
  food = 8,
  text = 16,
  inside = 32,
  beside = 64,
  unowned = 128
};
inline constexpr unsigned living = person | animal;
inline constexpr unsigned objects = thing | food | text;

/// Tenses and modal verbs. Values are bits of a set.
enum Tense : unsigned { present = 1, past = 2, future = 4, can = 8, must = 16, should = 32, want = 64 };
inline constexpr unsigned modal = can | must | should | want;

struct Noun {
  const char* english;
  const char* english_plural;
  const char* german;
  const char* german_plural;  // nominative
  Gender gender;
  unsigned kinds;
};

/// What an adjective is about: nothing has two qualities of one topic.
enum class Topic { age, size, colour, state };

struct Adjective {
  const char* english;
  const char* german;
  const char* german_stem;  // takes the endings
  Topic topic;
  unsigned kinds;  // of nouns it goes with
};

/// What a verb takes beside its subject.
enum class Frame { nothing, accusative, dative, both, direction, clause };

struct Verb {
  const char* english;
  const char* english_third;
  const char* english_past;
  const char* english_particle;  // "up" of "get up"
  const char* german_first;      // "ich ..."
  const char* german_third;      // "er ..."
  const char* german_plural;     // "wir ...", "sie ...": also the infinitive, without the prefix
  const char* german_participle;
  const char* german_prefix;  // separable
  bool perfect_with_sein;
  Frame frame;
  unsigned subjects;     // kinds of nouns
  unsigned accusatives;  // kinds of nouns
  unsigned datives;      // kinds of nouns
  bool takes_place;
  bool takes_manner;
};

struct Pronoun {
  const char* english_nominative;
  const char* english_object;
  const char* german_nominative;
  const char* german_accusative;
  const char* german_dative;
  bool first_person;
  bool plural;
};

struct TimePhrase {
  const char* english;
  const char* german;
  unsigned tenses;
  bool with_negation;
};

/// A word or phrase that is the same everywhere.
struct Adverb {
  const char* english;
  const char* german;
};

inline constexpr auto masculine = Gender::masculine;
inline constexpr auto feminine = Gender::feminine;
inline constexpr auto neuter = Gender::neuter;

inline constexpr std::array nouns = {
    Noun{"man", "men", "Mann", "Männer", masculine, person | unowned},
    Noun{"woman", "women", "Frau", "Frauen", feminine, person | unowned},
    Noun{"child", "children", "Kind", "Kinder", neuter, person},
    Noun{"teacher", "teachers", "Lehrer", "Lehrer", masculine, person},
    Noun{"girl", "girls", "Mädchen", "Mädchen", neuter, person | unowned},
    Noun{"mother", "mothers", "Mutter", "Mütter", feminine, person},
    Noun{"doctor", "doctors", "Arzt", "Ärzte", masculine, person},
    Noun{"friend", "friends", "Freund", "Freunde", masculine, person},
    Noun{"sister", "sisters", "Schwester", "Schwestern", feminine, person},
    Noun{"dog", "dogs", "Hund", "Hunde", masculine, animal},
    Noun{"cat", "cats", "Katze", "Katzen", feminine, animal},
    Noun{"horse", "horses", "Pferd", "Pferde", neuter, animal},
    Noun{"bird", "birds", "Vogel", "Vögel", masculine, animal},
    Noun{"hat", "hats", "Hut", "Hüte", masculine, thing},
    Noun{"table", "tables", "Tisch", "Tische", masculine, thing},
    Noun{"lamp", "lamps", "Lampe", "Lampen", feminine, thing},
    Noun{"clock", "clocks", "Uhr", "Uhren", feminine, thing},
    Noun{"car", "cars", "Auto", "Autos", neuter, thing},
    Noun{"picture", "pictures", "Bild", "Bilder", neuter, thing},
    Noun{"letter", "letters", "Brief", "Briefe", masculine, text},
    Noun{"story", "stories", "Geschichte", "Geschichten", feminine, text},
    Noun{"book", "books", "Buch", "Bücher", neuter, text},
    Noun{"apple", "apples", "Apfel", "Äpfel", masculine, food},
    Noun{"cake", "cakes", "Kuchen", "Kuchen", masculine, food},
    Noun{"pear", "pears", "Birne", "Birnen", feminine, food},
    Noun{"egg", "eggs", "Ei", "Eier", neuter, food},
    // Places stand in the singular only.
    Noun{"garden", "", "Garten", "", masculine, inside},
    Noun{"forest", "", "Wald", "", masculine, inside},
    Noun{"city", "", "Stadt", "", feminine, inside},
    Noun{"kitchen", "", "Küche", "", feminine, inside},
    Noun{"school", "", "Schule", "", feminine, inside | beside},
    Noun{"house", "", "Haus", "", neuter, inside | beside},
    Noun{"church", "", "Kirche", "", feminine, beside},
    Noun{"tree", "", "Baum", "", masculine, beside},
};

inline constexpr std::array adjectives = {
    Adjective{"old", "alt", "alt", Topic::age, living | thing | text | inside | beside},
    Adjective{"young", "jung", "jung", Topic::age, living},
    Adjective{"small", "klein", "klein", Topic::size, living | thing | food | inside | beside},
    Adjective{"big", "groß", "groß", Topic::size, animal | thing | food | inside | beside},
    Adjective{"tired", "müde", "müd", Topic::state, living},
    Adjective{"clever", "klug", "klug", Topic::state, living},
    Adjective{"friendly", "freundlich", "freundlich", Topic::state, living},
    Adjective{"good", "gut", "gut", Topic::state, person | text | food},
    Adjective{"new", "neu", "neu", Topic::age, thing | text},
    Adjective{"red", "rot", "rot", Topic::colour, objects},
    Adjective{"blue", "blau", "blau", Topic::colour, thing | text},
    Adjective{"beautiful", "schön", "schön", Topic::state, animal | thing | text | inside | beside},
    Adjective{"expensive", "teuer", "teur", Topic::state, thing | food},
};

inline constexpr std::array verbs = {
    // Nothing beside the subject.
    Verb{"sleep", "sleeps", "slept", "", "schlafe", "schläft", "schlafen", "geschlafen", "", false,
         Frame::nothing, living, 0, 0, true, false},
    Verb{"work", "works", "worked", "", "arbeite", "arbeitet", "arbeiten", "gearbeitet", "", false,
         Frame::nothing, person, 0, 0, true, true},
    Verb{"laugh", "laughs", "laughed", "", "lache", "lacht", "lachen", "gelacht", "", false, Frame::nothing,
         person, 0, 0, true, false},
    Verb{"dance", "dances", "danced", "", "tanze", "tanzt", "tanzen", "getanzt", "", false, Frame::nothing,
         person, 0, 0, true, true},
    Verb{"sing", "sings", "sang", "", "singe", "singt", "singen", "gesungen", "", false, Frame::nothing,
         person, 0, 0, true, true},
    Verb{"wait", "waits", "waited", "", "warte", "wartet", "warten", "gewartet", "", false, Frame::nothing,
         living, 0, 0, true, false},
    Verb{"get", "gets", "got", "up", "stehe", "steht", "stehen", "aufgestanden", "auf", true, Frame::nothing,
         person, 0, 0, false, true},
    Verb{"arrive", "arrives", "arrived", "", "komme", "kommt", "kommen", "angekommen", "an", true,
         Frame::nothing, person, 0, 0, false, false},
    // An accusative object.
    Verb{"see", "sees", "saw", "", "sehe", "sieht", "sehen", "gesehen", "", false, Frame::accusative, living,
         living | objects, 0, true, false},
    Verb{"hear", "hears", "heard", "", "höre", "hört", "hören", "gehört", "", false, Frame::accusative,
         living, living, 0, true, false},
    Verb{"look", "looks", "looked", "for", "suche", "sucht", "suchen", "gesucht", "", false,
         Frame::accusative, living, living | objects, 0, true, false},
    Verb{"find", "finds", "found", "", "finde", "findet", "finden", "gefunden", "", false, Frame::accusative,
         living, living | objects, 0, true, true},
    Verb{"buy", "buys", "bought", "", "kaufe", "kauft", "kaufen", "gekauft", "", false, Frame::accusative,
         person, animal | objects, 0, true, false},
    Verb{"sell", "sells", "sold", "", "verkaufe", "verkauft", "verkaufen", "verkauft", "", false,
         Frame::accusative, person, animal | objects, 0, true, false},
    Verb{"write", "writes", "wrote", "", "schreibe", "schreibt", "schreiben", "geschrieben", "", false,
         Frame::accusative, person, text, 0, true, true},
    Verb{"eat", "eats", "ate", "", "esse", "isst", "essen", "gegessen", "", false, Frame::accusative, person,
         food, 0, true, true},
    Verb{"love", "loves", "loved", "", "liebe", "liebt", "lieben", "geliebt", "", false, Frame::accusative,
         person, living, 0, false, false},
    Verb{"visit", "visits", "visited", "", "besuche", "besucht", "besuchen", "besucht", "", false,
         Frame::accusative, person, person, 0, false, false},
    Verb{"call", "calls", "called", "", "rufe", "ruft", "rufen", "angerufen", "an", false, Frame::accusative,
         person, person, 0, false, false},
    Verb{"invite", "invites", "invited", "", "lade", "lädt", "laden", "eingeladen", "ein", false,
         Frame::accusative, person, person, 0, false, false},
    Verb{"fetch", "fetches", "fetched", "", "hole", "holt", "holen", "abgeholt", "ab", false,
         Frame::accusative, person, person, 0, false, false},
    // A dative object.
    Verb{"help", "helps", "helped", "", "helfe", "hilft", "helfen", "geholfen", "", false, Frame::dative,
         person, 0, living, true, true},
    Verb{"thank", "thanks", "thanked", "", "danke", "dankt", "danken", "gedankt", "", false, Frame::dative,
         person, 0, person, false, false},
    Verb{"follow", "follows", "followed", "", "folge", "folgt", "folgen", "gefolgt", "", true, Frame::dative,
         living, 0, living, false, true},
    // Both.
    Verb{"give", "gives", "gave", "", "gebe", "gibt", "geben", "gegeben", "", false, Frame::both, person,
         objects, person, false, false},
    Verb{"show", "shows", "showed", "", "zeige", "zeigt", "zeigen", "gezeigt", "", false, Frame::both, person,
         animal | objects, person, false, false},
    Verb{"send", "sends", "sent", "", "schicke", "schickt", "schicken", "geschickt", "", false, Frame::both,
         person, thing | text, person, false, false},
    Verb{"bring", "brings", "brought", "", "bringe", "bringt", "bringen", "gebracht", "", false, Frame::both,
         person, objects, living, false, false},
    // A place to go to.
    Verb{"go", "goes", "went", "", "gehe", "geht", "gehen", "gegangen", "", true, Frame::direction, living, 0,
         0, false, true},
    Verb{"run", "runs", "ran", "", "laufe", "läuft", "laufen", "gelaufen", "", true, Frame::direction, living,
         0, 0, false, true},
    // A clause with "that".
    Verb{"say", "says", "said", "", "sage", "sagt", "sagen", "gesagt", "", false, Frame::clause, person, 0, 0,
         false, false},
    Verb{"believe", "believes", "believed", "", "glaube", "glaubt", "glauben", "geglaubt", "", false,
         Frame::clause, person, 0, 0, false, false},
    Verb{"know", "knows", "knew", "", "weiß", "weiß", "wissen", "gewusst", "", false, Frame::clause, person,
         0, 0, false, false},
};

inline constexpr std::array pronouns = {
    Pronoun{"I", "me", "ich", "mich", "mir", true, false},
    Pronoun{"he", "him", "er", "ihn", "ihm", false, false},
    Pronoun{"she", "her", "sie", "sie", "ihr", false, false},
    Pronoun{"we", "us", "wir", "uns", "uns", true, true},
    Pronoun{"they", "them", "sie", "sie", "ihnen", false, true},
};

inline constexpr std::array names = {"Anna", "Paul"};

inline constexpr std::array times = {
    TimePhrase{"today", "heute", present | past | future | modal, true},
    TimePhrase{"now", "jetzt", present | modal, true},
    TimePhrase{"yesterday", "gestern", past, true},
    TimePhrase{"tomorrow", "morgen", future | modal, true},
    TimePhrase{"every day", "jeden Tag", present | modal, false},
    TimePhrase{"in the evening", "am Abend", present | past | future | modal, true},
    TimePhrase{"on Sunday", "am Sonntag", past | future | modal, true},
    TimePhrase{"last week", "letzte Woche", past, true},
};

inline constexpr std::array frequencies = {Adverb{"often", "oft"}, Adverb{"always", "immer"},
                                           Adverb{"never", "nie"}};
inline constexpr std::array manners = {Adverb{"quickly", "schnell"}, Adverb{"slowly", "langsam"}};

/// Where something is: prepositions with the dative.
inline constexpr Adverb in_preposition = {"in", "in"};
inline constexpr std::array beside_prepositions = {Adverb{"behind", "hinter"}, Adverb{"in front of", "vor"},
                                                   Adverb{"next to", "neben"}};

}  // namespace toy::grammar
