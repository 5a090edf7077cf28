
"use strict";
// What every page of a rehead server does: find elements, send requests, ask for the token. It comes before page.js.

const $ = (id) => document.getElementById(id);
const show = (id, yes = true) => { $(id).hidden = !yes; };
const sentence = (text) => text ? text[0].toUpperCase() + text.slice(1) : "The request failed.";
const stored = (place, key, value) => {
  try { if (value === undefined) return place.getItem(key); place.setItem(key, value); } catch { /* storage is disabled */ }
  return null;
};
let token = stored(sessionStorage, "rehead-token") || "";

class RequestError extends Error {
  constructor(status, message, retryAfter) { super(message); this.status = status; this.retryAfter = retryAfter; }
}
async function request(path, body, signal) {
  const headers = token ? { Authorization: `Bearer ${token}` } : {};
  const options = { headers, signal, cache: "no-store" };
  if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    Object.assign(options, { method: "POST", body: JSON.stringify(body) });
  }
  let response, answer;
  try {
    response = await fetch(path, options);
    answer = await response.json();
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new RequestError(0, "The server does not respond. Is it still running?");
  }
  if (response.ok) return answer;
  if (response.status === 401) { show("token-card"); $("token").focus(); }
  throw new RequestError(response.status, sentence(answer.error), Number(response.headers.get("Retry-After")) || 1);
}
function onToken(begin) {
  $("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    token = $("token").value.trim();
    stored(sessionStorage, "rehead-token", token);
    show("token-card", false);
    begin();
  });
}
