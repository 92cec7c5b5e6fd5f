// An A2A 1.0 agent on the official JavaScript server: no model, the first words of a message say what happens.
//
//     node agent.mjs --port PORT
//
// JSON-RPC at /, HTTP+JSON at /rest, both with the library's v0.3 compatibility; the card at its well-known path.

import { AgentCard, Message, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent } from "@a2a-js/sdk";
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } from "@a2a-js/sdk/server";
import { agentCardHandler, jsonRpcHandler, restHandler, UserBuilder } from "@a2a-js/sdk/server/express";
import express from "express";
import { setTimeout as sleep } from "node:timers/promises";

const PNG =
  "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
const COLORS = { type: "object", properties: { color: { type: "string" } }, required: ["color"] };

const text = (words, metadata) => ({ text: words, metadata });
const data = (value, metadata) => ({ data: value, mediaType: "application/json", metadata });
const call = (name, args, id) => data({ id, name, args }, { adk_type: "function_call" });
const output = (name, value, id) => data({ id, name, response: { output: value } }, { adk_type: "function_response" });

/** One turn of a task: what it says goes onto the bus. */
class Run {
  constructor(taskId, contextId, bus) {
    Object.assign(this, { ids: { taskId, contextId }, bus, said: 0 });
  }

  message(...parts) {
    this.said += 1;
    return { role: "ROLE_AGENT", messageId: `${this.ids.taskId}-${this.said}`, parts, ...this.ids };
  }

  status(state, ...parts) {
    const status = { state: `TASK_STATE_${state}`, timestamp: new Date().toISOString() };
    if (parts.length) status.message = this.message(...parts);
    this.bus.publish(AgentEvent.statusUpdate(TaskStatusUpdateEvent.fromJSON({ status, ...this.ids })));
  }

  artifact(artifactId, parts, { append = false, lastChunk = false, ...more } = {}) {
    const event = { artifact: { artifactId, parts, ...more }, append, lastChunk, ...this.ids };
    this.bus.publish(AgentEvent.artifactUpdate(TaskArtifactUpdateEvent.fromJSON(event)));
  }

  async answer(pieces, pause = 10, goesOn = () => true) {
    for (const [n, piece] of pieces.entries()) {
      if (!goesOn()) return;
      this.artifact("answer", [text(piece)], { append: n > 0, lastChunk: n === pieces.length - 1 });
      await sleep(pause);
    }
  }
}

class Agent {
  heard = new Map(); // context → what was said in it
  asked = new Map(); // task → what it waits for
  contexts = new Map(); // task → context
  stopped = new Set();

  execute = async (context, bus) => {
    const { taskId, contextId, userMessage, task } = context;
    const run = new Run(taskId, contextId, bus);
    const given = Message.toJSON(userMessage).parts ?? [];
    const said = given.map((part) => part.text ?? "").join(" ");
    const asked = this.asked.get(taskId);
    this.asked.delete(taskId);
    this.contexts.set(taskId, contextId);
    if (said.startsWith("direct")) {
      const message = { ...run.message(text("A message, "), text("no task.")), taskId: "" };
      bus.publish(AgentEvent.message(Message.fromJSON(message)));
      return bus.finished();
    }
    if (task) {
      // The library refuses a turn whose first event names no task.
      bus.publish(AgentEvent.task(task));
    } else {
      const first = { id: taskId, contextId, status: { state: "TASK_STATE_SUBMITTED" } };
      bus.publish(AgentEvent.task({ ...Task.fromJSON(first), history: [userMessage] }));
    }
    run.status("WORKING");
    const before = this.heard.get(contextId) ?? [];
    this.heard.set(contextId, [...before, said]);
    if (asked) {
      await run.answer([`Your answer to the ${asked}: `, JSON.stringify(given.map((part) => part.text ?? part.data))]);
      run.status("COMPLETED");
    } else {
      await this.begin(run, said, before);
    }
    bus.finished();
  };

  async begin(run, said, before) {
    const [word, ...rest] = said.split(/\s+/);
    const ask = (kind, state, ...parts) => {
      this.asked.set(run.ids.taskId, kind);
      run.status(state, ...parts);
    };
    switch (word) {
      case "reasoning":
        for (const thought of ["I look at the question. ", "It is easy."])
          run.status("WORKING", text(thought, { adk_thought: true }));
        await run.answer(["The answer ", "is 42."]);
        break;
      case "status":
        run.status("WORKING", text("Looking it up …"));
        return run.status("COMPLETED", text("Said in a status alone."));
      case "tool":
        run.status("WORKING", call("weather", { city: "Paris" }, "call_1"));
        run.status("WORKING", output("weather", '{"celsius":21}', "call_1"));
        await run.answer(["It is 21 degrees ", "in Paris."]);
        break;
      case "parallel":
        run.status("WORKING", call("weather", { city: "Paris" }, "call_1"), call("weather", { city: "Rome" }, "call_2"));
        run.status("WORKING", output("weather", '{"celsius":25}', "call_2"));
        run.status("WORKING", output("weather", '{"celsius":21}', "call_1"));
        await run.answer(["Paris 21, ", "Rome 25."]);
        break;
      case "client":
        return ask(
          "tool",
          "INPUT_REQUIRED",
          data({ function_call: { call_id: "call_1", name: "locate", arguments: { precise: true } } }),
        );
      case "approval": {
        const shown = { id: "ask-1", kind: "approval", name: "delete_file", arguments: { path: "a.txt" } };
        shown.decisions = ["accept", "edit", "reject"];
        return ask("approval", "INPUT_REQUIRED", text("May I delete a.txt?"), data({ interrupt: shown }));
      }
      case "question":
        await run.answer(["Before I begin: "]);
        return ask("question", "INPUT_REQUIRED", text("Which color?"), data({ response_schema: COLORS }));
      case "login":
        return ask("login", "AUTH_REQUIRED", text("Log in at https://login.example/, then tell me."));
      case "image": {
        const picture = { raw: PNG, mediaType: "image/png", filename: "dot.png" };
        run.artifact("picture", [text("Here it is:"), picture], { lastChunk: true, name: "A picture" });
        const link = { url: "https://files.example/report.pdf", mediaType: "application/pdf" };
        run.artifact("link", [link, data({ n: 1, nested: { list: [1, 2.5, null] } })], { lastChunk: true });
        break;
      }
      case "replace":
        run.artifact("answer", [text("A first draft.")]);
        run.artifact("answer", [text("The second draft.")], { lastChunk: true });
        break;
      case "two":
        run.artifact("left", [text("one ")], { name: "Left" });
        run.artifact("right", [text("ONE ")], { name: "Right" });
        run.artifact("left", [text("two")], { append: true, lastChunk: true });
        run.artifact("right", [text("TWO")], { append: true, lastChunk: true });
        break;
      case "error":
        return run.status("FAILED", text("The database is away."));
      case "raise":
        throw new Error("the agent's code broke");
      case "fail":
        await run.answer(["Some words "]);
        return run.status("FAILED", text("The database went away."));
      case "broken":
        await run.answer(["Some words "]);
        throw new Error("the agent's code broke midway");
      case "reject":
        return run.status("REJECTED", text("I do not do that."));
      case "long": {
        const goesOn = () => !this.stopped.has(run.ids.taskId);
        await run.answer(Array.from({ length: Number(rest[0]) }, (_, n) => `${n} `), Number(rest[1]), goesOn);
        if (!goesOn()) return;
        break;
      }
      case "history":
        await run.answer(["Before, you said: ", JSON.stringify(before)]);
        break;
      case "unicode":
        await run.answer(["žluťoučký 🦊 ", "line\u2028paragraph\u2029next\u0085end\r\n", "\u{1f468}\u200d\u{1f469}"]);
        break;
      case "empty":
        break;
      default:
        await run.answer(["You said: ", ...said.split(/\s+/).map((each) => `${each} `)]);
    }
    run.status("COMPLETED");
  }

  cancelTask = async (taskId, bus) => {
    this.stopped.add(taskId);
    new Run(taskId, this.contexts.get(taskId), bus).status("CANCELED", text("Stopped."));
    bus.finished();
  };
}

const port = Number(process.argv[process.argv.indexOf("--port") + 1]);
const app = express();
const server = app.listen(port, "127.0.0.1", () => {
  const url = `http://127.0.0.1:${server.address().port}`;
  const supportedInterfaces = ["1.0", "0.3"].flatMap((protocolVersion) => [
    { url: `${url}/`, protocolBinding: "JSONRPC", protocolVersion },
    { url: `${url}/rest`, protocolBinding: "HTTP+JSON", protocolVersion },
  ]);
  const card = AgentCard.fromJSON({
    name: "Scripted", description: "Does what the first word says.", version: "1.0.0", supportedInterfaces,
    capabilities: { streaming: true }, defaultInputModes: ["text/plain"], defaultOutputModes: ["text/plain", "image/png"],
    skills: [{ id: "words", name: "Words", description: "All of it.", tags: ["test"] }],
  }); // prettier-ignore
  const requestHandler = new DefaultRequestHandler(card, new InMemoryTaskStore(), new Agent());
  const options = { requestHandler, userBuilder: UserBuilder.noAuthentication, legacyCompat: { enabled: true } };
  app.use("/.well-known/agent-card.json", agentCardHandler({ agentCardProvider: requestHandler, legacyCompat: { enabled: true } }));
  app.use("/rest", restHandler(options));
  app.use("/", jsonRpcHandler(options));
});
process.on("SIGTERM", () => process.exit());
