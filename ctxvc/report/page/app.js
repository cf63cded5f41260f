// Where the page begins: with the data that it carries, or with those of the server that it came from.
import { h } from "./dom.js";
import { startLive } from "./live.js";
import { replayPage } from "./replay.js";
import { sessionPage } from "./session_page.js";
import { statsPage } from "./stats.js";
import { startTheme } from "./theme.js";
import { startView } from "./view.js";

startTheme();
startView();
const raw = JSON.parse(document.getElementById("data").textContent);
document.getElementById("data").remove();
const page = document.getElementById("page");
if (raw === null) startLive(page);
else if (raw.kind === "session") sessionPage(page, raw);
else if (raw.kind === "replay") replayPage(page, raw);
else if (raw.kind === "stats") statsPage(page, raw);
else page.append(h("p", { class: "empty" }, `This page cannot draw “${raw.kind}”.`));
