"""The rules of `classify`, as data: words and patterns in a request that suggest its task.

A cue is a word or two words in a row, in lower case, or one word in capitals. The rules were
written for English requests and for foreign text to be translated. They were written from training
prompts, never from the prompts held out to measure them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cues:
    """Words that suggest a task; each one in a request gives the task `points` once."""

    task: str
    points: int
    cues: frozenset[str]


@dataclass(frozen=True, slots=True)
class Signs:
    """Case-sensitive pieces of text; a request with any of them gives the task `points` once."""

    task: str
    points: int
    signs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Shape:
    """A pattern in the unchanged request; repeats are bounded, so no text takes long to search."""

    task: str
    points: int
    pattern: re.Pattern[str]


CODE, SQL, API = "code_generation", "sql", "api_calls"
TRANSLATION, SUMMARY, MATHS = "translation", "summarization", "mathematics"
LEGAL, SUPPORT = "legal_analysis", "customer_support"
CREATIVE, QUESTION = "creative_writing", "question_answering"

TASKS = (CODE, SQL, API, TRANSLATION, SUMMARY, MATHS, LEGAL, SUPPORT, CREATIVE, QUESTION)
"""All tasks, in the order that breaks a tie: formal texts before prose, a plain question last."""


def _cues(task: str, points: int, text: str) -> Cues:
    return Cues(task, points, frozenset(" ".join(each.split()) for each in text.split(",")))


WORDS = (
    _cues(
        CODE,
        3,
        """
        python, javascript, typescript, java, c++, rust, golang, kotlin, swift, ruby, php,
        haskell, scala, perl, bash, powershell, in c, in go, in r, html, css, regex, regular
        expression, pandas, numpy, pytest, django, flask, react, vue, node js, express, awk,
        posix, makefile, dockerfile, stack trace, traceback, unit test, unit tests, standard
        library, refactor, docstring, one-liner, shell script, c#, lua, matlab, pytorch,
        asyncio, matplotlib, linked list, binary tree, code review, segfault, std, regexp,
        elixir, sed, dataframe, argparse, spring boot, angular, svelte, tailwind, junit,
        debug
        """,
    ),
    _cues(
        CODE,
        2,
        """
        function, script, class, algorithm, recursion, recursive, program, compile,
        compiler, implement, generator, iterator, decorator, dict, tuple, tuples, struct,
        enum, async, await, mutex, thread, threads, stdin, stdout, stderr, loop, lambda,
        immutable, leetcode, bug, code, dicts, cli, component, middleware, memory, cache,
        complexity, queue, sort, sorted, sorting, binary search, hash map, edge cases,
        command line, time complexity, ascii, directory, csv, parser, unicode, integers,
        subclass, interface
        """,
    ),
    _cues(
        CODE,
        1,
        """
        string, strings, array, list of, lists, file, files, return, returns, variables,
        loops, library, print, prints, parse, input, output, snippet, test, tests, method,
        type
        """,
    ),
    _cues(
        SQL,
        4,
        """
        sql, postgres, postgresql, mysql, sqlite, mariadb, oracle, snowflake, bigquery,
        clickhouse, duckdb, sql server, t-sql, plpgsql, left join, inner join, window
        function, window functions, primary key, foreign key, foreign keys, create table,
        group by, order by, row_number, cte, materialized view, stored procedure, upsert,
        jsonb, union all, insert into, delete from, select from, query plan, explain
        analyze, not null, ddl
        """,
    ),
    _cues(
        SQL,
        4,
        """
        UPDATE, EXISTS, BETWEEN, COALESCE, NULLIF, UNION, EXPLAIN, CHECK, EXCEPT, DISTINCT,
        HAVING, OVER, COMMITTED, ROLLUP, PARTITION, LATERAL, RETURNING, FIRST_VALUE,
        LAST_VALUE, WHERE, JOIN, NULL, SELECT, DELETE, SQL
        """,
    ),
    _cues(
        API,
        2,
        """
        POST, PUT, PATCH, GET, REST, HTTP
        """,
    ),
    _cues(
        SQL,
        2,
        """
        query, queries, table, tables, column, columns, row, rows, join, joins, index,
        indexes, database, schema, trigger, transaction, null, nulls, subquery, migration,
        constraint, constraints, select, relations, table of, pandas line, per row, one row,
        normalize, normalise, deadlock, isolation
        """,
    ),
    _cues(
        API,
        4,
        """
        json, yaml, curl, graphql, openapi, swagger, webhook, webhooks, json schema, api,
        rest api, endpoint, endpoints, function call, function calls, tool call, tool calls,
        payload, jwt, oauth, oauth2, toml, protobuf, grpc, kubernetes, docker compose,
        docker-compose, terraform, bearer, geojson, json-ld, manifest, apis, http, helm,
        ndjson, soap, postman, ansible, cron
        """,
    ),
    _cues(
        API,
        2,
        """
        request body, response body, body, header, headers, http request, sdk, fetch,
        requests, status code, post, rate limit, retry, pagination, paginated, cursor,
        config, arguments, tool, tools, token, nginx, stripe, slack, github, prometheus,
        keys, nested, xml, urllib, multipart, request, response, idempotency, parameters,
        fields, kafka, message broker
        """,
    ),
    _cues(
        TRANSLATION,
        5,
        """
        translate, translation, translations, translating, translated, übersetze,
        übersetzen, übersetzung, traduce, traduire, traduis, traduzca, traduci, traduzione,
        vertaal, in english, into english, to english, auf englisch, auf deutsch, en inglés,
        en anglais, ins englische, into german, into french, into spanish, into italian,
        into dutch, in german, in french, in spanish, in italian, to german, to french, to
        spanish, english version, english please, in inglese, english for, englische,
        english translation, english equivalent, naar het, subtitle,
        subtitles, mean in, an english, englisch, german to, french to, spanish to, dutch
        to, italian to, portuguese
        """,
    ),
    _cues(
        TRANSLATION,
        3,
        """
        english, german, french, spanish, italian, dutch, polish, russian, japanese,
        chinese, latin, swedish, turkish, inglés, engels, engelse, anglais, inglese, ins
        deutsche, idiomatic, de en, eng
        """,
    ),
    _cues(
        TRANSLATION,
        2,
        """
        der, das, und, nicht, ein, eine, einen, ist, sind, mit, auf, für, von, den, dem, zu,
        zum, zur, wir, ich, sie, haben, wird, werden, auch, bei, nach, über, im, sich, aus,
        le, les, une, des, est, dans, pour, que, qui, nous, vous, pas, sur, avec, du, el,
        los, las, una, por, con, para, está, del, il, che, di, non, sono, della, gli, het,
        een, niet, voor, met, op, zijn, wij, uw, ze, je, foi, não, uma, jest, nie, och, att,
        inte
        """,
    ),
    _cues(
        SUMMARY,
        5,
        """
        summarise, summarize, summary, summaries, summarised, summarized, summarising, tl
        dr, tldr, condense, condensed, synopsis, recap, gist, abstract of, sum up, sum this,
        boil, in brief, key points, main points, takeaways, bullet points, one sentence, two
        sentences, overview of, shorten, digest, executive summary, essence, compress,
        minutes of, blurb, précis, boil down
        """,
    ),
    _cues(
        SUMMARY,
        3,
        """
        headline, bullet, bullets, in three, three sentences, four sentences, sentence,
        sentences, five words, words max, under words, shorter, brief, caption, exactly two,
        two-line, one-line, one-sentence, article, text below, following text, passage, most
        important, at most, main argument, key facts, in short, bulletin, timeline, action
        items, sum
        """,
    ),
    _cues(
        MATHS,
        4,
        """
        solve, prove, equation, equations, integral, derivative, differentiate, integrate,
        probability, remainder, divisible, fraction, fractions, polynomial, matrix,
        triangle, hypotenuse, radius, perimeter, circumference, geometric, arithmetic,
        logarithm, sine, cosine, theorem, prime, primes, quadratic, slope, vertex, integers,
        modulo, factorial, permutations, eigenvalues, square root, the area, the volume,
        simplify, factor, ratio, proof, parabola, converge, converges, expected value,
        sequence, at random, percent of, km h, compound interest, standard deviation,
        average speed, how old, combinations, dice
        """,
    ),
    _cues(
        MATHS,
        2,
        """
        how many, liters, litres, liter, compute, calculate, evaluate, per hour, much does,
        altogether, square, twice, how much, how far, speed, sum of, times as, digits,
        digit, formula, angle, area, volume, as many, puzzle, rectangle, cube, of what, word
        problem, chance, binary, dividing, odd, intersection, line, lines, in all,
        intervals, infinity, mean, does each, smallest, at what, what fraction,
        real, find all, what day, least, weighs, socks
        """,
    ),
    _cues(
        MATHS,
        1,
        """
        cm, km, kg, meters, metres, percent, total, cost, costs, half, average, together,
        each, estimate, exactly, number of, the number, interest, numbers, find the, find,
        pays, minutes, hours, show that, every, coins, left over, per day, each other,
        argument, reaches, pupils, leaves, faster
        """,
    ),
    _cues(
        LEGAL,
        4,
        """
        clause, clauses, contract, contracts, agreement, lease, tenant, landlord, liability,
        liable, negligence, breach, indemnify, indemnity, indemnification, warranty,
        lawsuit, lawyer, attorney, statute, jurisdiction, plaintiff, defendant, copyright,
        trademark, patent, nda, gdpr, confidentiality, licensor, licensee, licence, license,
        lessee, lessor, borrower, arbitration, tort, shall, enforceable, sue, legal,
        legally, law, consideration, non-compete, bylaws, easement, fiduciary, damages,
        hereby, pursuant, deposition, injunction, estoppel, force majeure, prenup, probate,
        custody, severance, doctrine, ordinance, regulator, opt-in, opt-out, visa,
        merchantability, insolvency, creditors, defamation, royalties, trustee, subpoena,
        beneficiary, remedy, self-defense, warrant, constitutional, first amendment, double
        jeopardy, subtenant, sublease, fine print, liquidated, invoked, battle of, lien,
        decree, the exception, consignment, obligations, gdpr's, data subject, verdict
        """,
    ),
    _cues(
        LEGAL,
        2,
        """
        court, terms, notice, consent, provision, party, parties, binding, rights, personal
        data, employer, employee, employment, seller, buyer, terminate, termination,
        waive, waiver, claim, claims, vendor, supplier, company may, written
        notice, judge, deposit, reasonable, ownership, will says, privacy, compliance,
        policy says, dismissed, fair
        """,
    ),
    _cues(
        SUPPORT,
        4,
        """
        customer, customers, customer's, refund, refunded, refunds, support agent, helpdesk,
        help desk, support chat, our support, support ticket, complaint, complains, live
        chat, my order, your app, your website, your shop, your store, my subscription,
        canned, voicemail, call centre, call center, chatbot, reply to, escalation, hotline,
        reset my, my account, agents, your company, guest, troubleshooting, knowledge base,
        shopper, caller, front desk, your site, support team, after-sales, goodwill,
        customer-facing, customer-friendly, faq, auto-reply, your insurance, our help, help
        centre, help center, support contact, the agent, vip, apology email, our shop,
        customer service, your driver, your courier
        """,
    ),
    _cues(
        SUPPORT,
        2,
        """
        support, ticket, reply, agent, apologise, apologize, apology, cancel, cancelled,
        delivery, delivered, parcel, package, invoice, charged, billing, bill, subscription,
        account, replacement, router, wi-fi, app, password, log in, login, booking, booked,
        voucher, reservation, courier, warranty, return it, isn't working, not working,
        doesn't work, won't, can't, broken, stopped working, arrived, missing, respond,
        polite, policy, from you, passenger, chat, do i, i've been, membership, hotel,
        service, answer them, printer, wants to, i ordered, i bought, our, your, user, asks,
        says, apologising, explain to, store, store's, platform, fee, tickets, mail, update,
        keeps, offer, answer, battery, i've, buyer, member, subscriber, please
        help, sorry, expired
        """,
    ),
    _cues(
        CREATIVE,
        4,
        """
        story, stories, poem, poems, poetic, haiku, limerick, sonnet, lyrics, song, fairy
        tale, fable, monologue, dialogue, screenplay, scene, roleplay, role-play, fiction,
        novel, narrate, satirical, toast, speech, imagine, imagination, pretend, brainstorm,
        slogan, slogans, tagline, blog, character, invent, rhyme, rhyming, verse, verses,
        ballad, essay, creative, caption, captions, love letter, picture a, diary, ghost,
        names for, ideas for, villain, protagonist, thriller, eulogy, elegy, ode, horoscope,
        jingle, bedtime, pep talk, prose, play a, nonsense, vignette, shanty, newsletter,
        tweet, the style, voice of, point of, sketch in, comedy, detective, wizard, press
        release, commentator, persona, sci-fi, superhero, opening line, act as, suppose,
        breathless, dear, whimsical, anecdote, parody, epistolary, memoir, hero, channel,
        travel piece, housemate, gossip, dragon, pirate, time traveller, spoof, poster,
        mock, epic, villanelle, refrain, lyrical, comedian, stand-up, punchlines, punchline,
        put yourself, word picture, recount, product description, thank-you note,
        fundraising, children's, picture book, couplets, sketch, hot take, complain like,
        make up, fortune cookie, biography, legend, myth, riddle, mystery, cosmic
        """,
    ),
    _cues(
        CREATIVE,
        2,
        """
        write a, write an, write me, describe, describe a, compose, tone, funny, humorous,
        about a, from the, warm, playful, letter, letter from, tell me, talk, suggest, tale,
        set in, first person, rewrite, warmer, wedding, birthday, postcard, advice, ideas,
        tell the, as if, metaphor, talk to, you are, you're, you'll, let's, let, i'm the,
        explain to, honest, retell, opening, paragraphs, paragraph, convince, polish,
        continue, help me, message to, mood, goodbye, someone who, moment, conversation,
        argument between, voice, give me, interview, piece, the last, words for, headline
        ideas, instructions for, notes, love, somebody, speak, i'd like
        """,
    ),
    _cues(
        QUESTION,
        2,
        """
        why, who, when did, what's the, what is, what are, how does, how do, how did,
        according to, which of, does it, is it, why do, why does, why is, difference
        between, capital of, what was, where is, where does, history of, explain why, who
        was, what does, what causes, when was, how is, how are, invented, what happens,
        meaning of, source, does the, the text, explain, compare, excerpt, document, extract
        from, which one, how long, symptoms, population of, substitute for,
        leaflet, is there, worth it, versus, can you, vitamins, tallest, deepest, largest,
        oldest, highest, country, planet, species, climate, statement, passage
        """,
    ),
)

SIGNS = (
    Signs(
        CODE,
        6,
        ("```\n", "```py", "```js", "```ts", "```c", "```java", "```rust", "```go", "```sh"),
    ),
    Signs(
        CODE,
        4,
        ("def ", "#include", "const ", "int main", "=> {", "=> (", "();", "return ", "lambda "),
    ),
    Signs(CODE, 2, ("()", "O(", "._", "__", "->")),
    Signs(SQL, 6, ("```sql", "SELECT ", "INSERT INTO", "GROUP BY", "ORDER BY", "CREATE TABLE")),
    Signs(SQL, 2, ("_id,", "_id)", "(id,", "_at,", "_at)", "_on)", "_no,", " JOIN")),
    Signs(API, 6, ("```json", "```yaml", "```yml", "```graphql")),
    Signs(
        API,
        3,
        ('{"', '{ "', "GET /", "POST /", "PUT /", "PATCH /", "DELETE /", "http://", "https://"),
    ),
    Signs(API, 2, (".json", ".yaml", ".yml")),
    Signs(TRANSLATION, 2, ("„", "«", "→", "->", "DE >", "EN >")),
    Signs(
        MATHS,
        4,
        (
            "x^",
            "n^",
            "^2",
            "f(x)",
            "√",
            "∫",
            "\\frac",
            "x =",
            "y =",
            "+ x",
            "x +",
            "2x",
            "3x",
            "x -",
        ),
    ),
    Signs(MATHS, 2, ("%", " + ", " / ", " = ")),
    Signs(LEGAL, 2, (" shall ", "§", ': "', " may not ")),
)

SHAPES = (
    Shape(SQL, 3, re.compile(r"[a-z_]{2,40}\([a-z_]{1,40}(?:, ?[a-z_ ]{1,40}){1,12}\)")),
    Shape(TRANSLATION, 5, re.compile(r"[\u0370-\u1fff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]{4}")),
    Shape(TRANSLATION, 2, re.compile(r"[äöüßàâçéèêëîïñóôùúûąęłż]")),
    Shape(MATHS, 4, re.compile(r"\d ?[+*/^] ?\d")),
    Shape(MATHS, 3, re.compile(r"\A[^\d\n]{0,60}(?:\d{1,12}[^\d\n]{1,60}){4}")),
    Shape(SUMMARY, 3, re.compile(r"\A[^\n]{10,220}\n\n[^\n]{160}")),
    Shape(QUESTION, 3, re.compile(r"\?\W{0,4}\Z")),
    Shape(QUESTION, 3, re.compile(r"\A[a-z']{1,20}(?: [a-z']{1,20}){2,11}\Z")),
    Shape(QUESTION, 3, re.compile(r"\n[^\n]{4,240}\?\s{0,4}\Z")),
    Shape(
        QUESTION,
        3,
        re.compile(
            r"\A(?:what|why|who|when|where|which|how|is|are|do|does|did|can|could|should)\b",
            re.IGNORECASE,
        ),
    ),
)
