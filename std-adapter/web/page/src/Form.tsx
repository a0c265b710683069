import type { ComponentChildren } from 'preact';
import { jsonOf } from './exact';
import { type Draft, type Schema, asSchema, choicesOf, emptyDraft, formOf, formOfArguments, hints, requiredOf, typeName } from './schema';
import { namesFor } from './known';
import { Said } from './Said';
import { cut, oneLine, shown } from './text';

interface Properties {
  /** Unique in the page. */
  id: string;
  schema: Schema;
  draft: Draft;
  onChange: (draft: Draft) => void;
  errors: Map<string, string>;
}

/** The fields of an operation's arguments. */
export function Arguments({ id, schema, draft, onChange, errors }: Properties) {
  const form = formOfArguments(schema);
  if (form === null) return <p class="quiet">This operation takes no arguments.</p>;
  const inner = { id, schema, draft, onChange, errors, path: '', depth: 0 };
  return form === 'object' ? <Members {...inner} /> : <Field {...inner} name="arguments" required={requiredOf(schema).length > 0} />;
}

interface Inner extends Properties {
  path: string;
  depth: number;
}

function Members({ id, schema, draft, onChange, errors, path, depth }: Inner) {
  const given = typeof draft === 'object' && !Array.isArray(draft) ? draft : {};
  const needed = new Set(requiredOf(schema));
  return (
    <>
      {Object.entries(asSchema(schema.properties)).map(([name, raw]) => {
        const below = asSchema(raw);
        return (
          <Field
            key={name}
            id={`${id}-${safe(name)}`}
            name={name}
            schema={below}
            required={needed.has(name)}
            draft={Object.hasOwn(given, name) ? (given[name] as Draft) : emptyDraft(below, depth + 1)}
            onChange={(next) => onChange({ ...given, [name]: next })}
            errors={errors}
            path={path === '' ? name : `${path}.${name}`}
            depth={depth + 1}
          />
        );
      })}
    </>
  );
}

/** A part of an id: two names never have the same one, however fields are nested. */
const safe = (name: string) => [...name].map((letter) => (/[a-zA-Z0-9]/.test(letter) ? letter : `_${letter.codePointAt(0)?.toString(16)}_`)).join('');

function Field(given: Inner & { name: string; required: boolean }) {
  const { id, name, schema, required, draft, onChange, errors, path, depth } = given;
  const form = formOf(schema, depth);
  const label = oneLine(name, 200);
  const error = errors.get(path);
  const text = typeof draft === 'string' ? draft : '';
  const description = typeof schema.description === 'string' ? shown(cut(schema.description, 2000)) : '';
  const limits = hints(schema).join(' ');
  const described = [description || limits ? `${id}_hint` : '', error ? `${id}_error` : ''].filter(Boolean).join(' ');
  const common = { id, 'aria-describedby': described || undefined, 'aria-invalid': error ? true : undefined, 'aria-required': required };
  const notes = (
    <>
      {(description || limits) && (
        <div class="hint" id={`${id}_hint`}>
          {description}
          {description && !/[.!?]$/.test(description) ? '. ' : ' '}
          {limits}
        </div>
      )}
      {error && (
        <div class="error" id={`${id}_error`} role="alert">
          <Said text={error} />
        </div>
      )}
    </>
  );
  if (form === 'object' || form === 'list') {
    return (
      <fieldset class="field nested" aria-describedby={described || undefined}>
        <legend>
          {label} <Kind schema={schema} required={required} />
        </legend>
        {notes}
        {form === 'object' ? <Members {...given} /> : <List {...given} />}
      </fieldset>
    );
  }
  const onInput = (event: { currentTarget: { value: string } }) => onChange(event.currentTarget.value);
  let control: ComponentChildren;
  if (form === 'boolean' || form === 'choice') {
    const values = form === 'boolean' ? ['true', 'false'] : [...new Set(choicesOf(schema).map(jsonOf))];
    const none = required ? 'choose' : Object.hasOwn(schema, 'default') ? `default (${oneLine(jsonOf(schema.default), 40)})` : 'leave out';
    control = (
      <select {...common} value={text} onChange={onInput}>
        <option value="">{none}</option>
        {values.map((value) => (
          <option key={value} value={value}>
            {oneLine(value.startsWith('"') ? (JSON.parse(value) as string) : value, 120)}
          </option>
        ))}
      </select>
    );
  } else if (form === 'json') {
    control = <textarea {...common} rows={3} spellcheck={false} value={text} placeholder="JSON" onInput={onInput} />;
  } else {
    const placeholder = Object.hasOwn(schema, 'default') ? oneLine(typeof schema.default === 'string' ? schema.default : jsonOf(schema.default), 60) : '';
    control = (
      <input
        {...common}
        type="text"
        inputMode={form === 'text' ? 'text' : form === 'integer' ? 'numeric' : 'decimal'}
        autocomplete="off"
        autocapitalize="off"
        spellcheck={false}
        placeholder={placeholder}
        value={text}
        onInput={onInput}
      />
    );
  }
  const names = form === 'text' ? namesFor(name, schema) : [];
  return (
    <div class="field">
      <label for={id}>
        {label} <Kind schema={schema} required={required} />
      </label>
      {control}
      {names.length > 0 && (
        <div class="names" role="group" aria-label="Known names">
          {names.map((one) => (
            <button key={one} type="button" class="small" aria-pressed={text === one} onClick={() => onChange(one)}>
              {oneLine(one, 60)}
            </button>
          ))}
        </div>
      )}
      {notes}
    </div>
  );
}

function Kind({ schema, required }: { schema: Schema; required: boolean }) {
  return (
    <span class="kind">
      {{ json: `JSON, ${typeName(schema)}`, choice: `one of ${choicesOf(schema).length}` }[formOf(schema) as string] ?? typeName(schema)}, {required ? 'required' : 'optional'}
    </span>
  );
}

function List({ id, name, schema, draft, onChange, errors, path, depth }: Inner & { name: string }) {
  const entries = Array.isArray(draft) ? draft : [];
  const below = asSchema(schema.items);
  return (
    <>
      {entries.map((entry, at) => (
        <div class="entry" key={at}>
          <Field
            id={`${id}-${at}`}
            name={`${name} ${at + 1}`}
            schema={below}
            required
            draft={entry}
            onChange={(next) => onChange(entries.map((one, index) => (index === at ? next : one)))}
            errors={errors}
            path={`${path}.${at}`}
            depth={depth + 1}
          />
          <button type="button" class="small" onClick={() => onChange(entries.filter((_, index) => index !== at))}>
            Remove {oneLine(name, 200)} {at + 1}
          </button>
        </div>
      ))}
      <button type="button" class="small" onClick={() => onChange([...entries, emptyDraft(below, depth + 1)])}>
        Add an entry to {oneLine(name, 200)}
      </button>
    </>
  );
}
