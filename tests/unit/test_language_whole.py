"""Every key of the language once, and the values that are made of it."""

from datetime import timedelta

from contracts.events.run import RoleBinding
from libs.language.loader import load_folder
from libs.language.model import (
    AgentStep,
    Approvals,
    Channel,
    Concurrency,
    DecisionStep,
    EventStep,
    EventTrigger,
    ForEach,
    GateStep,
    ManualStep,
    ManualTrigger,
    ParallelStep,
    ScheduleTrigger,
    Wait,
    WriteStep,
)

WORKFLOW = """\
workflow:
  id: whole
  name: Whole
  repo: https://example.com/team/booking.git
  permission_mode: dontAsk
  variants:
    default: { context.region: EU, context.deal: D-0 }
    uk: { context.region: UK, stages.only.steps.ok.role: presales_uk }
  context: { required: [deal], scope: [project] }
  concurrency: { key: "{{context.deal}}", limit: 2, mode: coalesce, max_queued: 10 }
  triggers:
    - { kind: manual, roles: [sales] }
    - { kind: event, source: crm, match: { event: deal.changed } }
    - { kind: schedule, cron: "0 0 7 * * mon-fri", timezone: Europe/Berlin, overlap: allow, project: core }
    - { kind: schedule, every: 6h }
  run_as: workflows@example.com
  roles:
    presales: { roles: [presales], groups: [deal-desk], project: true }
  stages:
    - key: only
      steps:
        - { key: brief, kind: manual, role: presales, output: schemas/s.json, timeout: 8h, wait: { for: 1h } }
        - { key: changed, kind: event, source: crm, match: { deal: $context.deal }, timeout: 72h }
        - { key: sized, kind: gate, gate: steps.brief.size > 0, loop_to: brief, loop_max: 2, escalate_to: presales }
        - key: find
          kind: parallel
          join: any
          wait: { until: steps.brief.start_at }
          parallel:
            - { key: left, prompt: prompts/p.md, timeout: 5m }
            - { key: right, prompt: prompts/p.md }
        - { key: draft, kind: agent, prompt: prompts/p.md, timeout: 10m, for_each: { items: steps.brief.parts } }
        - key: when
          kind: decision
          role: presales
          question: When is {{context.deal}} due, after {{steps.draft.0}}?
          form: schemas/s.json
          outcomes: [answer, cancel]
          timeout: 8h
          timeout_answer: { day: monday }
        - key: ok
          kind: decision
          role: presales
          artifact: draft
          due: 4h
          escalate_to: deal_desk
          timeout: 48h
          approvals: { need: 2, distinct: false, groups: { legal: 1 }, veto: none }
          not: [initiator, reviser, brief]
          approval_valid_for: 24h
          on: { timeout: draft }
        - key: file
          kind: write
          system: tracker
          tool: create
          for_each: { items: steps.draft, max_parallel: 2 }
          args_from: item.issue
          args: { number: "{{index}}" }
          effect_key: "issue:{{item.id}}"
  on_failure: { default: escalate }
"""
FILES = {
    "workflows/whole/workflow.yaml": WORKFLOW,
    "workflows/whole/prompts/p.md": "Do it.",
    "workflows/whole/schemas/s.json": '{"type": "object"}',
    "sources.yaml": "sources: [{ id: crm, kind: webhook, adapter: salesforce, window: 1h }]",
    "channels.yaml": """
channels:
  - { id: ops, kind: webhook, url_ref: ops_url, secret_ref: ops_secret, about: [run.failed, source.failing] }
  - id: mail
    kind: email
    url_ref: mail_url
    about: [decision.opened, effect.in_doubt]
    roles: [presales]
    definitions: [whole]
    sender: minutebook@example.com
    to: [desk@example.com]
    holders: true
  - { id: chat, kind: slack, url_ref: chat_url, about: [] }
""",
}


def test_the_workflow() -> None:
    [bundle] = load_folder(FILES).workflows
    definition = bundle.definition
    assert (definition.repo, definition.permission_mode) == ("https://example.com/team/booking.git", "dontAsk")
    assert (definition.required_context, definition.scope_context) == (("deal",), ("project",))
    assert definition.context_defaults == {"region": "EU", "deal": "D-0"}
    assert definition.concurrency == Concurrency(key="{{context.deal}}", limit=2, mode="coalesce", max_queued=10)
    assert definition.triggers == (
        ManualTrigger(roles=("sales",)),
        EventTrigger(source="crm", match={"event": "deal.changed"}),
        ScheduleTrigger(cron="0 0 7 * * MON-FRI", timezone="Europe/Berlin", overlap="allow", project="core"),
        ScheduleTrigger(every=timedelta(hours=6)),
    )
    assert definition.roles == {"presales": RoleBinding(roles=("presales",), groups=("deal-desk",), project=True)}
    assert definition.on_failure == {"default": "escalate"}
    assert definition.variants["uk"] == {"context.region": "UK", "stages.only.steps.ok.role": "presales_uk"}


def test_the_steps() -> None:
    [bundle] = load_folder(FILES).workflows
    brief, changed, sized, find, draft, when, ok, file = bundle.definition.steps
    assert brief == ManualStep(
        key="brief",
        role="presales",
        output="schemas/s.json",
        timeout=timedelta(hours=8),
        wait=Wait(for_=timedelta(hours=1)),
    )
    assert changed == EventStep(
        key="changed", source="crm", match={"deal": "$context.deal"}, timeout=timedelta(hours=72)
    )
    assert sized == GateStep(
        key="sized", gate="steps.brief.size > 0", loop_to="brief", loop_max=2, escalate_to="presales"
    )
    assert isinstance(find, ParallelStep)
    assert (find.join, find.wait) == ("any", Wait(until="steps.brief.start_at"))
    assert [branch.timeout for branch in find.parallel] == [timedelta(minutes=5), None]
    assert draft == AgentStep(
        key="draft",
        prompt="prompts/p.md",
        timeout=timedelta(minutes=10),
        for_each=ForEach(items="steps.brief.parts"),
    )
    assert when == DecisionStep(
        key="when",
        role="presales",
        question="When is {{context.deal}} due, after {{steps.draft.0}}?",
        form="schemas/s.json",
        outcomes=("answer", "cancel"),
        timeout=timedelta(hours=8),
        timeout_answer={"day": "monday"},
    )
    assert ok == DecisionStep(
        key="ok",
        role="presales",
        artifact="draft",
        due=timedelta(hours=4),
        escalate_to="deal_desk",
        timeout=timedelta(hours=48),
        approvals=Approvals(need=2, distinct=False, groups={"legal": 1}, veto="none"),
        barred=("initiator", "reviser", "brief"),
        approval_valid_for=timedelta(hours=24),
        on_timeout="draft",
    )
    assert file == WriteStep(
        key="file",
        system="tracker",
        tool="create",
        for_each=ForEach(items="steps.draft", max_parallel=2),
        args_from="item.issue",
        args={"number": "{{index}}"},
        effect_key="issue:{{item.id}}",
        requires_decision="ok",
    )
    assert set(bundle.schemas) == {"schemas/s.json"}, "the schema of a manual step is kept too"


def test_a_source_has_a_window() -> None:
    [source] = load_folder(FILES).sources
    assert (source.adapter, source.window) == ("salesforce", timedelta(hours=1))
    none = load_folder({"sources.yaml": FILES["sources.yaml"].replace("window: 1h", "window: 0s")})
    assert none.sources[0].window == timedelta(0)


def test_a_bundle_with_variants_survives_storage() -> None:
    [bundle] = load_folder(FILES).workflows
    assert type(bundle).model_validate(bundle.model_dump(mode="json")) == bundle


def test_the_channels() -> None:
    ops, mail, chat = load_folder(FILES).channels
    assert (ops.id, ops.kind, ops.url_ref, ops.secret_ref) == ("ops", "webhook", "ops_url", "ops_secret")
    assert ops.about == ("run.failed", "source.failing")
    assert mail == Channel(
        id="mail",
        kind="email",
        url_ref="mail_url",
        about=("decision.opened", "effect.in_doubt"),
        roles=("presales",),
        definitions=("whole",),
        sender="minutebook@example.com",
        to=("desk@example.com",),
        holders=True,
        hash=mail.hash,
    )
    assert (chat.about, chat.hash) != (ops.about, ops.hash)
    assert chat.about == ()
