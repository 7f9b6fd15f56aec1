"use strict";
// Polls this page's server, draws the answers, and sends the user's requests. It pauses while the page is hidden.

const FIGURES_MS = 1000, STATE_MS = 200, STALE_S = 3, LOST_AFTER = 3, NEAR_M = 60;
const byId = (id) => document.getElementById(id);
const SVG = "http://www.w3.org/2000/svg";
const keys = {};
const drives = !document.querySelector(".views").hidden; // an evaluation, or no simulator: no camera, no map
let failures = 0, town = "", whole = null, wide = false, drawnRoute = "";
let drawn = null, kept = false, aheadS = 0; // the state that is drawn; whether `last` has a picture; the server's clock

async function ask(path) {
  const answer = await fetch(path, { cache: "no-store" });
  if (answer.status === 204) return null;
  if (!answer.ok) throw Object.assign(new Error(await answer.text()), { status: answer.status });
  return answer.json();
}

function every(ms, work) {
  const turn = async () => {
    if (!document.hidden) {
      try { await work(); } catch { /* the figures tell when the server is gone */ }
    }
    setTimeout(turn, ms);
  };
  turn();
}

// Figures, charts, buttons

every(FIGURES_MS, async () => {
  let found;
  try {
    found = await ask("/parts?have=" + Object.values(keys).join(","));
    failures = 0;
  } catch (error) {
    failures += 1;
    const barred = error.status === 401; // another server has this port now
    if (barred || failures >= LOST_AFTER) {
      byId("barred").hidden = !barred;
      byId("lost").hidden = barred;
      document.querySelectorAll("[data-do]").forEach((button) => { button.disabled = true; });
    }
    return;
  }
  aheadS = found.now - Date.now() / 1000;
  byId("lost").hidden = byId("barred").hidden = true;
  for (const [name, part] of Object.entries(found.parts)) {
    const open = [...byId(name).querySelectorAll("details")].map((each) => each.open);
    const scrolled = [...byId(name).querySelectorAll(".wide")].map((each) => each.scrollLeft);
    byId(name).innerHTML = part.html;
    byId(name).querySelectorAll("details").forEach((each, n) => { if (n in open) each.open = open[n]; });
    byId(name).querySelectorAll(".wide").forEach((each, n) => { each.scrollLeft = scrolled[n] || 0; });
    keys[name] = part.key;
  }
  for (const button of document.querySelectorAll("[data-do]")) {
    button.hidden = !(button.dataset.do in found.buttons);
    button.disabled = !found.buttons[button.dataset.do];
  }
  if (found.said) byId("said").textContent = found.said;
});

async function press(what) {
  const answer = await fetch("/do/" + what, { method: "POST" });
  const found = await answer.json().catch(() => ({ refused: "The page's server refused." }));
  byId("said").textContent = found.said || found.refused;
}

for (const button of document.querySelectorAll("[data-do]")) {
  button.addEventListener("click", () => {
    if (button.dataset.do === "stop") byId("sure").showModal();
    else press(button.dataset.do);
  });
}
byId("sure").addEventListener("close", () => {
  if (byId("sure").returnValue === "stop") press("stop");
  byId("sure").returnValue = "";
});

// The camera

function look() {
  if (!drives) return;
  const camera = byId("camera");
  if (!document.hidden) camera.src = "/camera";
  else {
    showCamera(false);
    camera.removeAttribute("src");
  }
}

function showCamera(live) {
  byId("camera").hidden = !live;
  byId("last").hidden = live || !kept;
  byId("dark").hidden = live || kept;
}

function lookAgain() {
  showCamera(false);
  setTimeout(look, 2000);
}

// A browser drops the picture of a stream that ends, Chromium without an event: the last one is kept in a canvas.
function keepPicture() {
  const camera = byId("camera"), last = byId("last");
  if (camera.hidden) return;
  if (!camera.naturalWidth) return lookAgain();
  [last.width, last.height] = [camera.naturalWidth, camera.naturalHeight];
  last.getContext("2d").drawImage(camera, 0, 0);
  kept = true;
}

function span(seconds) {
  const whole = Math.round(seconds), two = (count) => String(count).padStart(2, "0");
  if (whole < 60) return `${whole} s`;
  if (whole < 3600) return `${Math.floor(whole / 60)} min ${two(whole % 60)} s`;
  return `${Math.floor(whole / 3600)} h ${two(Math.floor(whole % 3600 / 60))} min`;
}

function showAge() {
  const age = Date.now() / 1000 + aheadS - drawn.time;
  byId("camera").parentElement.classList.toggle("stale", age > STALE_S);
  byId("age").textContent = age > STALE_S ? `${span(age)} ago` : `frame ${drawn.frame}`;
}

byId("camera").addEventListener("load", () => showCamera(true));
byId("camera").addEventListener("error", lookAgain);
document.addEventListener("visibilitychange", look);
look();

// The map and the car

function line(points) {
  return points.map(([x, y], n) => (n ? "L" : "M") + x + " " + y).join("");
}

function bounds(lanes) {
  const xs = lanes.flat().map((point) => point[0]), ys = lanes.flat().map((point) => point[1]);
  const least = (values) => values.reduce((a, b) => Math.min(a, b)), most = (values) => values.reduce((a, b) => Math.max(a, b));
  const left = least(xs), top = least(ys), side = Math.max(most(xs) - left, most(ys) - top) + 20;
  return [left - 10, top - 10, side, side];
}

async function drawTown(name) {
  const found = await ask("/map");
  if (!found || found.town !== name) return;
  byId("lanes").setAttribute("d", found.lanes.map(line).join(""));
  whole = bounds(found.lanes);
  town = name;
}

function replaced(group, shapes) {
  group.replaceChildren(...shapes.map(([tag, attributes]) => {
    const shape = document.createElementNS(SVG, tag);
    for (const [name, value] of Object.entries(attributes)) shape.setAttribute(name, value);
    return shape;
  }));
}

function bar(id, from, to, unit) {
  byId(id).setAttribute("d", `M${from * unit} 0H${to * unit}V10H${from * unit}Z`);
}

every(STATE_MS, async () => {
  if (!drives) return;
  keepPicture();
  if (drawn) showAge(); // also of a server that doesn't answer any more
  const state = await ask("/state");
  if (!state) return;
  if (state.town !== town) await drawTown(state.town);
  drawn = state;
  const [x, y, yaw] = state.car, near = [x - NEAR_M, y - NEAR_M, 2 * NEAR_M, 2 * NEAR_M];
  byId("map").setAttribute("viewBox", (wide && whole ? whole : near).join(" "));
  byId("car").setAttribute("transform", `translate(${x} ${y}) rotate(${yaw})` + (wide ? " scale(3)" : ""));
  byId("car").setAttribute("visibility", "visible");
  const route = line(state.route);
  if (route !== drawnRoute) byId("route").setAttribute("d", drawnRoute = route);
  replaced(byId("others"), state.others.map(([kind, , ox, oy, oyaw, length, width]) => ["rect", {
    class: kind, x: -Math.max(length, 0.5), y: -Math.max(width, 0.5), width: 2 * Math.max(length, 0.5),
    height: 2 * Math.max(width, 0.5), rx: kind === "walker" ? 0.5 : 0.4, transform: `translate(${ox} ${oy}) rotate(${oyaw})`,
  }]));
  replaced(byId("lights"), state.lights.map(([lx, ly, colour]) => ["circle", { class: "light " + colour, cx: lx, cy: ly, r: wide ? 4 : 1.8 }]));
  byId("speed").textContent = (3.6 * state.speed_mps).toFixed(0);
  byId("whole").textContent = state.end ? `episode ended: ${state.end.replace("_", " ")}` : `reward ${state.reward.toFixed(2)}`;
  bar("steer", Math.min(0, state.steer), Math.max(0, state.steer), 100);
  bar("throttle", 0, state.throttle, 200);
  bar("brake", 0, state.brake, 200);
  bar("done", 0, state.route_completion, 200);
  const rows = Object.entries(state.reward_terms).map(([name, value]) => {
    const row = document.createElement("tr"), head = document.createElement("th"), cell = document.createElement("td");
    head.textContent = name.replaceAll("_", " ");
    cell.textContent = value.toFixed(3);
    row.append(head, cell);
    return row;
  });
  byId("terms").replaceChildren(...rows);
});

byId("wider").addEventListener("click", () => {
  wide = !wide;
  byId("wider").setAttribute("aria-pressed", String(wide));
});
