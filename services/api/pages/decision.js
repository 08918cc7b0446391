// Shows one decision and sends one answer. The token is a variable of this page: it is stored nowhere, stands in no
// address, and is gone when the page is. Nothing is decided before a button is pressed.

const DECISION = location.pathname.split("/").filter(Boolean).at(-1);
// The page stands at <prefix>/decisions/<id>; the api below the same prefix, which a proxy may have put before both.
const API = new URL("api/public/admin/workflows/", new URL("..", location.href));

const WORDS = {
  approve: "Approve",
  request_changes: "Request changes",
  reject: "Reject",
  cancel: "Cancel the run",
  answer: "Answer",
};

const at = (id) => document.getElementById(id);
let token = "";
let decision = null;
let key = fresh();

function fresh() {
  return crypto.randomUUID?.() ?? String(Math.random());
}

function say(text, state) {
  at("said").hidden = text === "";
  at("said").textContent = text;
  at("said").dataset.state = state;
  if (text !== "") at("said").focus();
}

async function ask(method, path, { body, headers } = {}) {
  let response;
  try {
    response = await fetch(new URL(path, API), {
      method,
      headers: {
        authorization: `Bearer ${token}`,
        ...(body === undefined ? {} : { "content-type": "application/json" }),
        ...headers,
      },
      body: body === undefined ? undefined : JSON.stringify(body),
      credentials: "omit",
      cache: "no-store",
      referrerPolicy: "no-referrer",
    });
  } catch {
    throw { status: 0, detail: "The server does not answer. Try again." };
  }
  const answered = await response.json().catch(() => ({}));
  if (!response.ok) throw { status: response.status, ...answered };
  return answered;
}

function explained(problem) {
  switch (problem.status) {
    case 401:
      return "This token is unknown, was revoked or has ended. Use another one.";
    case 404:
      return "There is no such decision, or it is not yours to see.";
    default:
      return problem.detail || `The server answered ${problem.status}.`;
  }
}

const moment = (text) => new Date(text).toLocaleString(undefined, { dateStyle: "medium", timeStyle: "short" });

function fact(name, value) {
  const group = document.createElement("div");
  const term = document.createElement("dt");
  const said = document.createElement("dd");
  term.textContent = name;
  said.textContent = value;
  group.append(term, said);
  return group;
}

function item(text) {
  const made = document.createElement("li");
  made.textContent = text;
  return made;
}

function show() {
  at("enter").hidden = true;
  at("decision").hidden = false;
  document.title = `${decision.title} · Minutebook`;
  at("title").textContent = decision.title;
  at("facts").replaceChildren(
    fact("Workflow", decision.definition_id),
    fact("Step", decision.step),
    fact("For", [decision.role, decision.escalated_to].filter(Boolean).join(", ")),
    fact("Opened", moment(decision.opened_at)),
    ...(decision.due_at ? [fact("Due", moment(decision.due_at))] : []),
    ...(decision.needed > 1 ? [fact("Approvals", `${decision.approvals} of ${decision.needed}`)] : []),
    ...decision.votes.map((vote) => fact("Voted", `${WORDS[vote.outcome] ?? vote.outcome}: ${vote.by.name}`)),
    fact("Run", decision.run_id),
  );
  at("asked").hidden = !decision.question;
  at("question").textContent = decision.question ?? "";
  const artifact = decision.revised_artifact ?? decision.artifact;
  at("shown").hidden = artifact == null;
  at("artifact-title").textContent = decision.artifact_step ? `What ${decision.artifact_step} proposes` : "The artefact";
  at("artifact").textContent = typeof artifact === "string" ? artifact : JSON.stringify(artifact, null, 2);
  at("changes").hidden = decision.differences.length === 0;
  at("changes").replaceChildren(...decision.differences.map(({ path, kind }) => item(`${path}: ${kind}`)));
  showState();
}

function showState() {
  const open = decision.state === "open";
  at("answer").hidden = !open || !decision.may_answer;
  if (decision.state === "answered" && decision.answer) {
    const said = `Answered ${decision.answer.outcome} by ${decision.answer.by.name} on ${moment(decision.answer.at)}.`;
    say(decision.answer.comment ? `${said} “${decision.answer.comment}”` : said, "answered");
  } else if (decision.state === "withdrawn") {
    say(`Nobody needs to answer any more: ${decision.withdrawn_because ?? "it was withdrawn"}.`, "answered");
  } else if (!decision.may_answer) {
    const barred = decision.not_for.length ? `, and not for: ${decision.not_for.join(", ")}` : "";
    say(`You have nothing to answer here now. It is for the role ${decision.role}${barred}.`, "open");
  } else {
    say("", "open");
    at("outcomes").replaceChildren(...decision.outcomes.map(button));
    const asks = decision.outcomes.includes("answer");
    at("given").hidden = at("given-label").hidden = !asks;
  }
}

function button(outcome, index) {
  const made = document.createElement("button");
  made.type = "submit";
  made.className = index === 0 ? "button is-primary" : "button";
  made.value = outcome;
  made.textContent = WORDS[outcome] ?? outcome;
  return made;
}

/** What is typed as an answer: JSON where it is an object, else the text of the default form. */
function given() {
  const text = at("given").value;
  try {
    const value = JSON.parse(text);
    if (value !== null && typeof value === "object" && !Array.isArray(value)) return value;
  } catch {
    // Text, then.
  }
  return { answer: text };
}

async function load() {
  decision = await ask("GET", `decisions/${DECISION}`);
  show();
  const me = await ask("GET", "me").catch(() => null);
  at("who").textContent = me?.name ?? me?.email ?? "";
}

function busy(form, is) {
  for (const one of form.querySelectorAll("button")) one.disabled = is;
}

at("enter").addEventListener("submit", async (event) => {
  event.preventDefault();
  token = at("token").value.trim();
  busy(event.target, true);
  try {
    await load();
    at("token").value = "";
  } catch (problem) {
    say(explained(problem), "failed");
  } finally {
    busy(event.target, false);
  }
});

at("answer").addEventListener("submit", async (event) => {
  event.preventDefault();
  const outcome = event.submitter?.value;
  if (!outcome) return;
  const comment = at("comment").value.trim();
  const body = {
    // Bound to what was looked at: what has become another thing meanwhile is not answered unseen.
    ...(decision.shown_digest ? { shown: decision.shown_digest } : {}),
    ...(comment ? { comment } : {}),
    ...(outcome === "answer" ? { answer: given() } : {}),
  };
  busy(event.target, true);
  try {
    // The same key while nothing else is sent: pressing again after a lost reply is the same answer.
    await ask("POST", `decisions/${DECISION}/${outcome}`, { body, headers: { "idempotency-key": `${key}-${outcome}` } });
    key = fresh();
    at("comment").value = at("given").value = "";
    await load();
  } catch (problem) {
    if (problem.status === 409) await load().catch(() => {});
    if (decision.state === "open") say(explained(problem), "failed");
  } finally {
    busy(event.target, false);
  }
});

at("enter").hidden = false;
at("token").focus();
