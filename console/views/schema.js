// A form for arguments with a JSON Schema: texts, numbers, booleans, and choices. Other schemas are edited as JSON.

import { html } from '../vendor/lit-html/lit-html.js';

/** The fields of an item's schema. `null` if a form cannot show all of them. */
export function fieldsOf(item) {
  const schema = item.schema;
  if (!schema || schema.type !== 'object' || !schema.properties) return null;
  const fields = Object.entries(schema.properties).map(([name, rule]) => ({
    name, rule, required: (schema.required ?? []).includes(name), title: rule.title ?? name,
  }));
  const isSimple = ({ rule }) => Array.isArray(rule.enum) || ['string', 'number', 'integer', 'boolean'].includes(rule.type);
  return fields.length > 0 && fields.every(isSimple) ? fields : null;
}

function read(text) {
  try {
    const value = JSON.parse(text);
    return value && typeof value === 'object' ? value : {};
  } catch {
    return {};
  }
}

/** A sentence with the names of required fields without a value. Empty: all have a value. */
export function missingOf(fields, text) {
  const value = read(text);
  const missing = fields.filter(({ name, required }) => required && value[name] === undefined).map(({ title }) => title);
  return missing.length > 0 ? `Missing: ${missing.join(', ')}` : '';
}

/**
 * @param {any[]} fields
 * @param {string} text  the arguments as JSON
 * @param {(text: string) => void} change
 */
export function schemaForm(fields, text, change) {
  const value = read(text);
  // An emptied number field has no value and is omitted.
  const set = (name, one) => change(JSON.stringify({ ...value, [name]: Number.isNaN(one) ? undefined : one }));
  return html`<div class="schema">${fields.map((field) => html`<label>${field.title}${field.required ? ' *' : ''}
    ${input(field, value[field.name], set)}${field.rule.description ? html`<span class="hint">${field.rule.description}</span>` : ''}</label>`)}</div>`;
}

function input({ name, rule, required }, value, set) {
  if (Array.isArray(rule.enum)) {
    return html`<select ?required=${required} @change=${(event) => set(name, event.target.selectedIndex > 0 ? rule.enum[event.target.selectedIndex - 1] : undefined)}>
      <option value="" ?selected=${!rule.enum.includes(value)}>–</option>
      ${rule.enum.map((one) => html`<option ?selected=${one === value}>${String(one)}</option>`)}</select>`;
  }
  if (rule.type === 'boolean') {
    return html`<input type="checkbox" .checked=${value === true} @change=${(event) => set(name, event.target.checked)}>`;
  }
  if (rule.type === 'string') {
    return html`<input ?required=${required} .value=${value ?? ''} @input=${(event) => set(name, event.target.value)}>`;
  }
  return html`<input type="number" step=${rule.type === 'integer' ? '1' : 'any'} ?required=${required} .value=${String(value ?? '')}
    @input=${(event) => set(name, event.target.valueAsNumber)}>`;
}
