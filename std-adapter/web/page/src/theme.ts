import { computed, effect, signal } from '@preact/signals';

export const CHOICES = ['system', 'light', 'dark'] as const;
export type Choice = (typeof CHOICES)[number];

const system = matchMedia('(prefers-color-scheme: dark)');
const systemIsDark = signal(system.matches);
system.addEventListener('change', () => (systemIsDark.value = system.matches));

const forced = matchMedia('(forced-colors: active)');
const isForced = signal(forced.matches);
forced.addEventListener('change', () => (isForced.value = forced.matches));

const choice = signal<Choice>(remembered());
/** Where the system forces its colours, they are what counts. */
const isDark = computed(() => (choice.value === 'system' || isForced.value ? systemIsDark.value : choice.value === 'dark'));
export const theme = { choice, isDark, isForced };

effect(() => {
  document.documentElement.dataset.theme = isDark.value ? 'dark' : 'light';
  try {
    localStorage.setItem('rigline-theme', choice.value);
  } catch {
    // A browser that keeps nothing: the choice lasts as long as the page.
  }
});

function remembered(): Choice {
  try {
    return CHOICES.find((one) => one === localStorage.getItem('rigline-theme')) ?? 'system';
  } catch {
    return 'system';
  }
}
