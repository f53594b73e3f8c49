// Grafana's own field configuration: defaults, overrides, transformations.
//
// @grafana/data applies them by a list of properties that it does not bring: that list is part of
// Grafana's server. It is made here of the properties that the dashboard uses; one that nothing
// here knows is an error, never a panel that looks almost right.
import {
  applyFieldOverrides,
  cacheFieldDisplayNames,
  FieldConfigOptionsRegistry,
  FieldType,
  standardTransformers,
  standardTransformersRegistry,
  transformDataFrame,
} from '@grafana/data';
import { lastValueFrom } from 'rxjs';

const number = (field) => field.type === FieldType.number;
const any = () => true;

const STANDARD = {
  color: number,
  mappings: any,
  min: number,
  noValue: any,
  thresholds: number,
  unit: number,
};

const CUSTOM = {
  align: any,
  axisPlacement: number,
  axisSoftMax: number,
  drawStyle: number,
  fillOpacity: number,
  inspect: any,
  lineInterpolation: number,
  lineStyle: number,
  lineWidth: number,
  minWidth: any,
  showPoints: number,
  spanNulls: number,
  stacking: number,
  thresholdsStyle: number,
  width: any,
};

const property = (isCustom) => ([path, shouldApply]) => ({
  id: isCustom ? `custom.${path}` : path,
  name: path,
  path,
  isCustom,
  shouldApply,
  process: (value) => value,
});

export const REGISTRY = new FieldConfigOptionsRegistry(() => [
  ...Object.entries(STANDARD).map(property(false)),
  ...Object.entries(CUSTOM).map(property(true)),
]);

const TRANSFORMERS = [
  standardTransformers.joinByFieldTransformer,
  standardTransformers.filterFieldsByNameTransformer,
  standardTransformers.organizeFieldsTransformer,
];

standardTransformersRegistry.setInit(() =>
  TRANSFORMERS.map((one) => ({
    id: one.id,
    name: one.name,
    transformation: () => Promise.resolve(one),
    editor: () => null,
  }))
);

/** What a panel's configuration says that is not known here. */
export function unknown(panel) {
  const { defaults, overrides } = panel.fieldConfig;
  const { custom = {}, ...standard } = defaults;
  const used = [
    ...Object.keys(standard),
    ...Object.keys(custom).map((name) => `custom.${name}`),
    ...overrides.flatMap((one) => one.properties.map(({ id }) => id)),
  ];
  const steps = (panel.transformations ?? []).map(({ id }) => id);
  return [
    ...used.filter((id) => !REGISTRY.getIfExists(id)),
    ...steps.filter((id) => !standardTransformersRegistry.getIfExists(id)),
  ];
}

/** The frames as a panel shows them. */
export async function configured(panel, frames, theme) {
  const steps = panel.transformations ?? [];
  const context = { interpolate: (text) => text };
  const data = steps.length
    ? await lastValueFrom(transformDataFrame(steps, frames, context))
    : frames;
  const shown = applyFieldOverrides({
    data,
    fieldConfig: panel.fieldConfig,
    fieldConfigRegistry: REGISTRY,
    replaceVariables: (text) => text,
    theme,
    timeZone: 'browser',
  });
  cacheFieldDisplayNames(shown);
  return shown;
}
